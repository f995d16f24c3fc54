package auth

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestApplyEdits are texts of every style; all bytes but the values stay.
func TestApplyEdits(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"compact", `{"a":1,"b":2}`, `{"a":"new","b":2}`},
		{"spaces", "{ \"a\" : 1 ,\n\t\"b\": 2 }\n", "{ \"a\" : \"new\" ,\n\t\"b\": 2 }\n"},
		{"missing", `{"b":2}`, `{"b":2,"a":"new"}`},
		{"missing, pretty", "{\n  \"b\": 2\n}\n", "{\n  \"b\": 2,\n  \"a\": \"new\"\n}\n"},
		{"empty", "{}", `{"a":"new"}`},
		{"empty with space", "{ }", `{"a":"new" }`},
		{"escaped key", `{"\u0061":1}`, `{"\u0061":"new"}`},
		{"nested twin", `{"b":{"a":1},"a":[{"a":2}]}`, `{"b":{"a":1},"a":"new"}`},
		{"braces in strings", `{"b":"}\"{,","a":"\\"}`, `{"b":"}\"{,","a":"new"}`},
		{"numbers kept", `{"b":1.50e+2,"a":null}`, `{"b":1.50e+2,"a":"new"}`},
		{"literals", `{"b":true,"a":false,"c":null}`, `{"b":true,"a":"new","c":null}`},
	} {
		o, err := parseObject([]byte(tc.in))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		got, err := applyEdits([]byte(tc.in), []edit{{o, "a", quote("new")}})
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s (%v), want %s", tc.name, got, err, tc.want)
		}
	}
	o, err := parseObject([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := applyEdits([]byte(`{}`), []edit{{o, "a", quote("<1>&")}, {o, "b", quote("2")}})
	if err != nil || string(got) != `{"a":"<1>&","b":"2"}` {
		t.Errorf("%s (%v)", got, err)
	}
	if o, err = parseObject([]byte(`{"a":1,"a":2}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := applyEdits([]byte(`{"a":1,"a":2}`), []edit{{o, "a", quote("x")}}); err == nil {
		t.Error("a key that is there twice was edited")
	}
}

// FuzzApplyEdits: the result is JSON, holds the new value, and differs from the
// text in the value's place only.
func FuzzApplyEdits(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":2}`, "{\n  \"b\": {\"a\": []}\n}\n", `{}`, `{"":0,"a":"\ud800","x":-0}`, `{"b":"\\\"","a":{"a":{}}}`, "{\"\u00e9\":\"\xff\"}",
	} {
		f.Add([]byte(s), "value")
	}
	f.Fuzz(func(t *testing.T, text []byte, value string) {
		o, err := parseObject(text)
		if err != nil {
			if json.Valid(text) && len(bytes.TrimSpace(text)) > 0 && bytes.TrimSpace(text)[0] == '{' {
				t.Fatalf("valid JSON was refused: %v", err)
			}
			return
		}
		m, there, err := o.find("a")
		if err != nil {
			return
		}
		out, err := applyEdits(text, []edit{{o, "a", quote(value)}})
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(out) {
			t.Fatalf("not JSON: %q", out)
		}
		again, err := parseObject(out)
		if err != nil {
			t.Fatal(err)
		}
		n, ok, err := again.find("a")
		if !ok || err != nil {
			t.Fatalf("the value is not there: %q", out)
		}
		if !bytes.Equal(out[n.valAt:n.valEnd], quote(value)) {
			t.Fatalf("another value: %q", out)
		}
		if there {
			if string(out) != string(text[:m.valAt])+string(quote(value))+string(text[m.valEnd:]) {
				t.Fatalf("other bytes changed: %q -> %q", text, out)
			}
			return
		}
		// Without the new member the text is what it was.
		last := n.keyAt
		for last > 0 && (isSpace(out[last-1]) || out[last-1] == ',') {
			last--
		}
		rest := string(out[:last]) + string(out[n.valEnd:])
		if len(again.members) > 1 && rest != string(text) {
			t.Fatalf("other bytes changed: %q -> %q", text, out)
		}
	})
}

// FuzzParseBundle: no text makes the reader of auth.json fail other than with a
// sentence, and what it accepts can be renewed without losing a byte.
func FuzzParseBundle(f *testing.F) {
	f.Add([]byte(chatgptFile("acct")))
	f.Add([]byte(apiKeyFile))
	f.Add([]byte(strings.Replace(chatgptFile("acct"), "{", "{\n \"x\" : [1, {}],", 1)))
	f.Add([]byte(`{"auth_mode":null,"tokens":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := parseBundle(text)
		if err != nil || b.mode != fileChatGPT {
			return
		}
		now := b.lastRefresh.Add(1)
		out, err := b.with(renewed{access: NewSecret("new-access"), refresh: NewSecret("new-refresh")}, now)
		if err != nil {
			t.Fatal(err)
		}
		n, err := parseBundle(out)
		if err != nil || n.access.Reveal() != "new-access" || n.refresh.Reveal() != "new-refresh" || n.account != b.account {
			t.Fatalf("%v\n%s", err, out)
		}
		if !n.lastRefresh.Equal(now) {
			t.Fatalf("last_refresh %s, want %s", n.lastRefresh, now)
		}
	})
}

// FuzzReadJournal: whatever half-written file is found, only what was a whole
// bundle comes out.
func FuzzReadJournal(f *testing.F) {
	f.Add([]byte(apiKeyFile), []byte(chatgptFile("a")), 40)
	f.Fuzz(func(t *testing.T, old, text []byte, cut int) {
		if _, err := parseObject(old); err != nil || len(text) == 0 {
			return
		}
		file := &memFile{b: append(bytes.Clone(old), bytes.Repeat([]byte{padding}, 2*len(text)+256)...)}
		left := cut
		file.limit = &left
		_ = writeJournaled(file, len(old), text)                                               // stopped at some byte
		unpadded := func(b []byte) []byte { return bytes.TrimRight(b, string(rune(padding))) } // the old text may end with some
		if bytes.Equal(unpadded(file.b), unpadded(old)) || bytes.Equal(file.b, text) {
			return // before the first byte, or done
		}
		got := readJournal(file.b)
		if !bytes.Equal(got, text) && !bytes.Equal(unpadded(got), unpadded(old)) {
			t.Fatalf("cut %d: got %q from %q", cut, got, file.b)
		}
	})
}
