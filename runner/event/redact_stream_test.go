package event

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestWriterAtEveryBorder(t *testing.T) {
	for _, secret := range samples[:9] {
		r := NewRedactor()
		r.Add(secret, "S")
		for name, form := range forms(strings.TrimSpace(secret)) {
			text := `before\` + form + `=after "x\u00" ` + form + "\n"
			want := r.Mask(text)
			for cut := 1; cut < len(text); cut++ {
				if got := stream(t, r, text[:cut], text[cut:]); got != want {
					t.Fatalf("%q, %s, cut at %d:\n got %q\nwant %q", secret, name, cut, got, want)
				}
			}
			var bytewise []string
			for i := range len(text) {
				bytewise = append(bytewise, text[i:i+1])
			}
			if got := stream(t, r, bytewise...); got != want {
				t.Fatalf("%q, %s, byte by byte:\n got %q\nwant %q", secret, name, got, want)
			}
		}
	}
}

func stream(t testing.TB, r *Redactor, chunks ...string) string {
	t.Helper()
	var out strings.Builder
	w := r.Writer(&out)
	for _, c := range chunks {
		if n, err := w.Write([]byte(c)); err != nil || n != len(c) {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestWriterHoldsBackOnlyBeginnings(t *testing.T) {
	r := NewRedactor()
	r.Add("hunter2-hunter2", "PW")
	var out strings.Builder
	w := r.Writer(&out)
	for _, c := range []struct{ write, want string }{
		{"a line\n", "a line\n"},
		{"prompt> ", "a line\nprompt> "},
		{"hunt", "a line\nprompt> "},
		{"ing", "a line\nprompt> hunting"},
		{" hunter2-hunter", "a line\nprompt> hunting "},
		{"2" + strings.Repeat(".", edgeBytes), "a line\nprompt> hunting [masked:PW]" + strings.Repeat(".", edgeBytes)},
	} {
		if _, err := w.Write([]byte(c.write)); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Fatalf("after %q: %q, want %q", c.write, out.String(), c.want)
		}
	}
	out.Reset()
	w.Write([]byte("hunter2"))
	if w.Flush(); out.String() != "hunter2" {
		t.Errorf("after Flush: %q", out.String())
	}
}

// A long line of odd text is neither kept whole nor decoded from the middle.
func TestWriterForgets(t *testing.T) {
	secret := `q"u\ote`
	r := NewRedactor()
	r.Add(secret, "S")
	rng := rand.New(rand.NewPCG(1, 2))
	for _, filler := range []string{`\`, `\n`, `\\u00e9`, "%41", "%25", `%5C%6E`, `\u0041%`, "abc", `\ud83d\ude00`} {
		text := strings.Repeat(filler, 7000/len(filler))
		all := forms(secret)
		for _, i := range rng.Perm(len(all))[:5] {
			name := slices.Sorted(maps.Keys(all))[i]
			form := all[name]
			at := len(filler) * (5000/len(filler) + rng.IntN(1000/len(filler)))
			text := text[:at] + form + text[at:]
			var chunks []string
			for c := range slices.Chunk([]byte(text), 1+rng.IntN(900)) {
				chunks = append(chunks, string(c))
			}
			if got, want := stream(t, r, chunks...), r.Mask(text); got != want {
				t.Fatalf("%q, %s: streamed and whole differ", filler, name)
			}
		}
		var out bytes.Buffer
		w := r.Writer(&out)
		for range 12 {
			w.Write([]byte(text))
		}
		if len(w.buf) > 2*len(text)+2*keepBytes {
			t.Errorf("%q: %d bytes kept", filler, len(w.buf))
		}
	}
}

// What a stream lets through does not depend on how it is cut. In the text "¤"
// stands for the secret, the byte after it says in which form.
func FuzzRedactWriter(f *testing.F) {
	for i, s := range samples {
		f.Add(s, "¤a \\¤b% %25¤c\n¤d\\u00¤e==\n  ¤f%5c¤g", []byte{1, 2, byte(i), 9})
	}
	f.Fuzz(func(t *testing.T, secret, text string, sizes []byte) {
		r := NewRedactor()
		if len(secret) > 200 || len(text) > 500 || len(sizes) == 0 || !r.Add(secret, "S") {
			return
		}
		all := forms(strings.TrimSpace(secret))
		names := slices.Sorted(maps.Keys(all))
		for head, rest, ok := strings.Cut(text, "¤"); ok && rest != "" && len(text) < 1<<16; head, rest, ok = strings.Cut(text, "¤") {
			text = head + all[names[int(rest[0])%len(names)]] + rest[1:]
		}
		var chunks []string
		for at, n := 0, 0; at < len(text); n++ {
			end := min(len(text), at+1+int(sizes[n%len(sizes)]))
			chunks = append(chunks, text[at:end])
			at = end
		}
		want := r.Mask(text)
		if got := stream(t, r, chunks...); got != want {
			t.Fatalf("secret %q, chunks %q:\n got %q\nwant %q", secret, chunks, got, want)
		}
		if again := r.Mask(want); again != want {
			t.Fatalf("not stable: %q, then %q", want, again)
		}
	})
}
