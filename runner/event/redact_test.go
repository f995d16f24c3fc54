package event

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// forms are the ways in which secret may stand in a text, each with a name. They
// are written with other means than the redactor's.
func forms(secret string) map[string]string {
	f := map[string]string{"plain": secret}
	level := secret
	for n := range textEscapes {
		b, _ := json.Marshal(level)
		level = string(b[1 : len(b)-1])
		f[fmt.Sprintf("json %d", n+1)] = level
	}
	var unicode, slashes, percents, percent2, hexEscapes strings.Builder
	for _, r := range secret {
		if r > 0xffff {
			r -= 0x10000
			fmt.Fprintf(&unicode, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		} else {
			fmt.Fprintf(&unicode, `\u%04x`, r)
		}
	}
	for _, b := range []byte(secret) {
		switch {
		case b < ' ':
			fmt.Fprintf(&slashes, `\%03o`, b)
		case b < 0x80 && !strings.ContainsRune("nrtbfux0123", rune(b)):
			slashes.WriteByte('\\')
			slashes.WriteByte(b)
		default:
			slashes.WriteByte(b)
		}
		fmt.Fprintf(&percents, "%%%02x", b)
		fmt.Fprintf(&percent2, "%%25%02X", b)
		fmt.Fprintf(&hexEscapes, `\x%02x`, b)
	}
	if utf8.ValidString(secret) {
		f["unicode escapes"] = unicode.String()
	}
	f["shell escapes"] = slashes.String()
	f["hex escapes"] = hexEscapes.String()
	f["percent, all"] = percents.String()
	f["percent twice"] = percent2.String()
	f["query"] = url.QueryEscape(secret)
	f["query, lower case"] = lowerPercents(url.QueryEscape(secret))
	f["path"] = url.PathEscape(secret)
	f["path twice"] = url.PathEscape(url.PathEscape(secret))
	f["hex"] = hex.EncodeToString([]byte(secret))
	f["HEX"] = strings.ToUpper(f["hex"])
	f["hex, colons"] = groups(f["hex"], 2, ":")
	f["hex, words"] = groups(f["hex"], 4, " ")
	f["hex, lines"] = groups(f["hex"], 60, "\n")
	for n := range 3 {
		for m := range 3 {
			around := []byte(strings.Repeat("<", n) + secret + strings.Repeat(">", m))
			f[fmt.Sprintf("base64 %d+%d", n, m)] = base64.StdEncoding.EncodeToString(around)
			f[fmt.Sprintf("base64 url %d+%d", n, m)] = base64.RawURLEncoding.EncodeToString(around)
		}
	}
	f["base64, lines"] = groups(f["base64 1+1"], 16, "\n")
	f["base64, block"] = "\n    " + groups(f["base64 2+0"], 16, "\r\n    ")
	f["base64 in a URL"] = url.QueryEscape(f["base64 0+1"])
	b, _ := json.Marshal(f["base64, lines"])
	f["base64 in JSON"] = string(b[1 : len(b)-1])
	return f
}

func lowerPercents(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			b.WriteString(strings.ToLower(s[i : i+3]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func groups(s string, n int, sep string) string {
	var list []string
	for part := range slices.Chunk([]byte(s), n) {
		list = append(list, string(part))
	}
	return strings.Join(list, sep)
}

var samples = []string{
	"sk-fake-9f8e7d6c5b4a39281706",
	"secret",
	`pa"ss\wo/rd<&>' %41+b`,
	"pässwörd-日本-🔑-end",
	"tab\there\nand a line\r\nand another one, longer\n.",
	"nightpass\\n\\u0041",
	"=====ab==",
	"aaaaaaaaaaaaaaaaaaaaaaab",
	"https://user:pass-word-1@example.com/db?x=1",
	"\x00\x01\x02\x03\x04\x05\x06",
	strings.Repeat("0123456789abcdef", 12),
}

func TestMaskForms(t *testing.T) {
	for _, secret := range samples {
		r := NewRedactor()
		if !r.Add(secret, "THE_NAME") {
			t.Fatalf("%q was refused", secret)
		}
		secret = strings.TrimSpace(secret)
		for name, form := range forms(secret) {
			for i, around := range [][2]string{{"", ""}, {"a ", " z"}, {`\`, `"`}, {`C:\`, ";"}, {"%", "%4"}, {"=", "="}, {"/x ", "\n"}, {`\\`, `\`}} {
				if (i+len(name))%3 != 0 {
					continue // the oracle is slow
				}
				if strings.HasSuffix(around[0], `\`) && strings.Contains(form, `\`) && name != "plain" {
					continue // whose backslash is it?
				}
				text := around[0] + form + around[1]
				got := r.Mask(text)
				if how := leak(got, secret); how != "" {
					t.Errorf("%q, %s: %q became %q: %s", secret, name, text, got, how)
				}
				if !strings.Contains(got, "THE_NAME") {
					t.Errorf("%q, %s: the mask does not name it: %q", secret, name, got)
				}
				if again := r.Mask(got); again != got {
					t.Errorf("%q, %s: masked again: %q, then %q", secret, name, got, again)
				}
			}
		}
	}
}

// leak tells how secret can be had from text, by decoders of its own.
func leak(text, secret string) string {
	texts := map[string]string{"as it is": text}
	for level, s := 0, text; level < textEscapes; level++ {
		s = slowUnescape(s)
		texts[fmt.Sprintf("unescaped %d", level+1)] = s
	}
	for name, s := range texts {
		p := slowUnpercent(s)
		texts["unpercented "+name] = p
		texts["twice unpercented "+name] = slowUnpercent(p)
	}
	for name, s := range texts {
		if strings.Contains(s, secret) || strings.Contains(strings.ReplaceAll(s, "+", " "), secret) && !strings.Contains(secret, "+") {
			return name
		}
		joined := strings.NewReplacer("\n", "", "\r", "", " ", "").Replace(s)
		for _, run := range strings.FieldsFunc(joined, func(r rune) bool { return r > 127 || base64Class[r] >= notDigit }) {
			run = strings.NewReplacer("-", "+", "_", "/").Replace(run)
			for skip := range min(4, len(run)) {
				piece := run[skip:]
				if len(piece)%4 == 1 {
					piece = piece[:len(piece)-1]
				}
				b, _ := base64.RawStdEncoding.DecodeString(piece)
				if bytes.Contains(b, []byte(secret)) {
					return "base64, " + name
				}
			}
		}
		digits := strings.NewReplacer(":", "", "\n", "", " ", "").Replace(s)
		for _, run := range strings.FieldsFunc(digits, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", r) }) {
			for skip := range min(2, len(run)) {
				b, _ := hex.DecodeString(run[skip : len(run)-(len(run)-skip)%2])
				if bytes.Contains(b, []byte(secret)) {
					return "hex, " + name
				}
			}
		}
	}
	return ""
}

func slowUnescape(s string) string {
	var out []byte
	for len(s) > 0 {
		var r rune
		if s[0] != '\\' || len(s) < 2 {
			out, s = append(out, s[0]), s[1:]
			continue
		}
		if n, _ := fmt.Sscanf(s, `\u%4x`, &r); n == 1 && len(s) >= 6 {
			var low rune
			if n, _ := fmt.Sscanf(s[6:], `\u%4x`, &low); n == 1 && r >= 0xd800 && r < 0xdc00 {
				r, s = 0x10000+(r-0xd800)<<10+low-0xdc00, s[6:]
			}
			out, s = utf8.AppendRune(out, r), s[6:]
			continue
		}
		if n, _ := fmt.Sscanf(s, `\x%2x`, &r); n == 1 && len(s) >= 4 {
			out, s = append(out, byte(r)), s[4:]
			continue
		}
		switch s[1] {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		default:
			out = append(out, s[1])
		}
		s = s[2:]
	}
	return string(out)
}

func slowUnpercent(s string) string {
	var out []byte
	for len(s) > 0 {
		var b byte
		if n, _ := fmt.Sscanf(s, "%%%2x", &b); n == 1 && len(s) >= 3 && base64Class[s[2]] < 64 {
			out, s = append(out, b), s[3:]
			continue
		}
		out, s = append(out, s[0]), s[1:]
	}
	return string(out)
}

func TestMaskLeavesTheRest(t *testing.T) {
	r := NewRedactor()
	r.Add("hunter2-hunter2", "PW")
	for text, want := range map[string]string{
		"":                                "",
		"nothing here":                    "nothing here",
		"say hunter2-hunter2!":            "say [masked:PW]!",
		"hunter2-hunter2hunter2-hunter2":  "[masked:PW][masked:PW]",
		"hunter2-hunter":                  "hunter2-hunter",
		`{"k":"hunter2\u002dhunter2","z"`: `{"k":"[masked:PW]","z"`,
		"Basic " + base64.StdEncoding.EncodeToString([]byte("u:hunter2-hunter2")) + " x": "Basic dTp[masked:PW] x",
		"50%25 of hunter2%2Dhunter2%":                         "50%25 of [masked:PW]%",
		"a\\nb hunter2-hunter2 \\":                            "a\\nb [masked:PW] \\",
		"id " + hex.EncodeToString([]byte("hunter2-hunter2")): "id [masked:PW]",
	} {
		if got := r.Mask(text); got != want {
			t.Errorf("Mask(%q)\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestSecretsInSecrets(t *testing.T) {
	for name, c := range map[string]struct{ secret, text, lost string }{
		"line of a key":   {"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nabcdefghijklmnopqrstuv==\n-----END KEY-----\n", "1: MIIEvQIBADANBgkqhkiG9w0BAQ", "MIIEvQIB"},
		"key as JSON":     {"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END KEY-----\n", `"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END KEY-----\n"`, "MIIEvQIB"},
		"terminal":        {"first long line here\nxy", "first long line here\r\nxy", "first"},
		"in a document":   {`{"type":"service","private_key_id":"0123456789abcdef0123","private_key":"abcdefghijklmnopqr"}`, "k=abcdefghijklmnopqr", "abcdefgh"},
		"nested document": {`{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNzd29yZDEy"}}}`, "dXNlcjpwYXNzd29yZDEy", "dXNlcjpw"},
		"URL":             {"postgres://app:s3cr3t-pw@db.example.com/app", "PGPASSWORD=s3cr3t-pw", "s3cr3t"},
		"escaped in URL":  {"postgres://app:s3cr%40t-pw@db.example.com/app", "PGPASSWORD=s3cr@t-pw", "s3cr@t"},
		"base64 of JSON":  {`pw"with"quotes`, base64.StdEncoding.EncodeToString([]byte(`{"p":"pw\"with\"quotes"}`)), "d2l0aF"},
		"white space":     {"  spaced-out \n", "xspaced-outx", "spaced"},
		"not UTF-8":       {"bad\xff\xfeword", "bad\ufffd\ufffdword", "bad"},
	} {
		r := NewRedactor()
		r.Add(c.secret, "S")
		if got := r.Mask(c.text); strings.Contains(got, c.lost) || !strings.Contains(got, "[masked:S]") {
			t.Errorf("%s: %q became %q", name, c.text, got)
		}
	}
	r := NewRedactor()
	r.Add(`{"type":"service","private_key_id":"0123456789abcdef0123","private_key":"abcdefghijklmnopqr"}`, "S")
	if text := "the id is 0123456789abcdef0123"; r.Mask(text) != text {
		t.Errorf("a key's id was masked: %q", r.Mask(text))
	}
}

func TestShortSecrets(t *testing.T) {
	r := NewRedactor()
	if r.Add("12345", "PIN") || r.Add("  x  ", "X") || r.Add("12345", "PIN") {
		t.Error("a short secret was accepted")
	}
	if got := r.Mask("12345 x"); got != "12345 x" {
		t.Errorf("masked: %q", got)
	}
	n := r.Notices()
	if len(n) != 2 || !strings.Contains(n[0].Message, "PIN") || n[0].Class != "secret_too_short" {
		t.Errorf("notices: %+v", n)
	}
}

func TestMarkers(t *testing.T) {
	for _, c := range []struct {
		secrets []string
		want    string
	}{
		{[]string{"plain-secret"}, "[masked:N_A_ME]"},
		{[]string{"with[bracket"}, "*masked:N_A_ME*"},
		{[]string{"with[*<{(|bracket"}, "█masked:N_A_ME█"},
		{[]string{"with]*>}|)bracket"}, "█masked:N_A_ME█"},
		{[]string{"masked"}, "[***]"},
		{[]string{"N_A_ME"}, "[***]"},
	} {
		r := NewRedactor()
		for _, s := range c.secrets {
			r.Add(s, "N A\nME")
		}
		if got := r.Mask(c.secrets[0]); got != c.want {
			t.Errorf("%q: %q, want %q", c.secrets, got, c.want)
		}
	}
}

func TestMaskJSON(t *testing.T) {
	r := NewRedactor()
	r.Add("hunter2-hunter2", "PW")
	r.Add("12345678", "NUMBER")
	r.Add("completed", "WORD")
	r.Add("message", "FIELD")
	r.Add(`x","b":"y`, "STRUCTURE")
	for line, want := range map[string]string{
		`{"a":"nothing"}`:                                                                     `{"a":"nothing"}`,
		`{"a":"hunter2-hunter2"}`:                                                             `{"a":"[masked:PW]"}`,
		`{"a":"hunter2\u002Dhunter2\n\""}`:                                                    `{"a":"[masked:PW]\n\""}`,
		`{"a":"{\"b\":\"hunter2\\u002dhunter2\"}"}`:                                           `{"a":"{\"b\":\"[masked:PW]\"}"}`,
		`{"hunter2-hunter2":[1,"hunter2-hunter2",null,true]}`:                                 `{"[masked:PW]":[1,"[masked:PW]",null,true]}`,
		`{"arguments":{"pin":12345678,"list":[-12345678.5]}}`:                                 `{"arguments":{"pin":"[masked:NUMBER]","list":["-[masked:NUMBER].5"]}}`,
		`{"seq":12345678,"duration_ms":12345678}`:                                             `{"seq":12345678,"duration_ms":12345678}`,
		`{"time":"2026-01-31T10:00:00.123456789Z","x":"12345678"}`:                            `{"time":"2026-01-31T10:00:00.123456789Z","x":"[masked:NUMBER]"}`,
		`{"type":"item.completed","item":{"status":"completed","message":"it is completed"}}`: `{"type":"item.completed","item":{"status":"completed","message":"it is [masked:WORD]"}}`,
		`{"a":"x","b":"y"}`:                                                                   `{"a":"x","b":"y"}`,
		`{"a":"x\",\"b\":\"y"}`:                                                               `{"a":"[masked:STRUCTURE]"}`,
		` [ "hunter2-hunter2" , { "a" : { } } ] `:                                             ` [ "[masked:PW]" , { "a" : { } } ] `,
		`no JSON but hunter2-hunter2`:                                                         `"no JSON but [masked:PW]"`,
		`no JSON, no secret`:                                                                  `no JSON, no secret`,
	} {
		if got := string(r.MaskJSON([]byte(line))); got != want {
			t.Errorf("MaskJSON(%s)\n got %s\nwant %s", line, got, want)
		}
	}
}

// Every kind of event survives every form of a secret, in every sink.
func TestLogMasks(t *testing.T) {
	secret := `k"ey/with\odd+chars`
	r := NewRedactor()
	r.Add(secret, "K")
	var got []Record
	log := NewLog(nil, r, sinkFunc(func(rec Record) { got = append(got, rec) }))
	for name, form := range forms(secret) {
		raw, _ := json.Marshal(map[string]any{form: []string{form}})
		log.Emit(ItemCompleted{Item{"item_0", MCPToolCall{Server: form, Arguments: raw, Result: &MCPResult{Content: []json.RawMessage{raw}}, Status: Completed}}})
		log.Emit(ItemCompleted{Item{"item_1", CommandExecution{Command: form, AggregatedOutput: name + "\n" + form + "\n", Status: Failed}}})
		log.Emit(AgentEvent{AgentID: "a", Record: raw})
		log.Emit(Unknown{Type: "new.kind", Raw: json.RawMessage(`{"type":"new.kind","x":` + string(raw) + `}`)})
	}
	if err := log.Finish(context.Background(), RunCompleted{FinalMessage: secret}); err != nil {
		t.Fatal(err)
	}
	for _, rec := range got {
		if n, ok := rec.Event.(Notice); ok {
			t.Fatalf("an event was lost: %+v", n)
		}
		b, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		collect(b, &all)
		for _, s := range all {
			if how := leak(s, secret); how != "" {
				t.Errorf("%s: %s", how, b)
			}
		}
	}
	if len(got) != 4*len(forms(secret))+1 {
		t.Errorf("%d records", len(got))
	}
}

type sinkFunc func(Record)

func (f sinkFunc) Handle(r Record) error       { f(r); return nil }
func (f sinkFunc) Close(context.Context) error { return nil }

// collect appends all strings of a JSON value.
func collect(b []byte, to *[]string) {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			*to = append(*to, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				*to = append(*to, k)
				walk(e)
			}
		}
	}
	walk(v)
}

func TestRedactorConcurrent(t *testing.T) {
	r := NewRedactor()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				secret := fmt.Sprintf("secret-%d-%d-end", g, i)
				r.Add(secret, "S")
				if got := r.Mask("a " + secret + " b"); got != "a [masked:S] b" {
					t.Errorf("%q", got)
				}
				if got := string(r.MaskJSON([]byte(`"` + secret + `"`))); got != `"[masked:S]"` {
					t.Errorf("%q", got)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzRedactor(f *testing.F) {
	for i, s := range samples {
		f.Add(s, samples[(i+1)%len(samples)], "some \\ text %", uint8(i), uint16(i*7))
	}
	f.Fuzz(func(t *testing.T, secret, second, around string, form uint8, cut uint16) {
		if len(secret)+len(second)+len(around) > 2000 {
			return
		}
		r := NewRedactor()
		if !r.Add(secret, "A") {
			return
		}
		r.Add(second, "B")
		secret = strings.TrimSpace(secret)
		all := forms(secret)
		names := slices.Sorted(maps.Keys(all))
		name := names[int(form)%len(names)]
		at := int(cut) % (len(around) + 1)
		if name != "plain" && strings.ContainsAny(around[max(0, at-6):at], `\%`) {
			at = 0 // a stray escape swallows the beginning of an encoded form
		}
		text := around[:at] + all[name] + around[at:]
		got := r.Mask(text)
		if strings.Contains(got, secret) || strings.Contains(got, all[name]) {
			t.Fatalf("%s: %q became %q", name, text, got)
		}
		if again := r.Mask(got); again != got {
			t.Fatalf("not stable: %q, then %q", got, again)
		}
		c := int(cut) % (len(text) + 1)
		if s := stream(t, r, text[:c], text[c:]); s != got {
			t.Fatalf("cut at %d: %q, whole: %q", c, s, got)
		}
		line, _ := json.Marshal(map[string]any{"text": text, text: []any{text, 1}})
		masked := r.MaskJSON(line)
		if !json.Valid(masked) {
			t.Fatalf("no JSON: %s", masked)
		}
		var strs []string
		collect(masked, &strs)
		for _, s := range strs {
			if strings.Contains(s, secret) && !vocabulary().words[s] && !vocabulary().names[s] {
				t.Fatalf("left in %s", masked)
			}
		}
	})
}
