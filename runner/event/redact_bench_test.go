package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// fifty returns a redactor with fifty secrets of the usual kinds.
func fifty() *Redactor {
	r := NewRedactor()
	for i := range 50 {
		sum := sha256.Sum256([]byte{byte(i)})
		value := "sk-proj-" + hex.EncodeToString(sum[:20])
		switch i % 5 {
		case 1:
			value = "ghp_" + hex.EncodeToString(sum[:18])
		case 2:
			value = fmt.Sprintf("eyJhbGciOiJSUzI1NiJ9.%x.%x", sum, sum[:16])
		case 3:
			value = fmt.Sprintf("p%dw-%x", i, sum[:6])
		case 4:
			value = "-----BEGIN KEY-----\n" + strings.Repeat(hex.EncodeToString(sum[:])+"\n", 12) + "-----END KEY-----"
		}
		r.Add(value, fmt.Sprintf("SECRET_%d", i))
	}
	return r
}

// logLine is an item.completed record of about n bytes with ordinary output.
func logLine(n int) []byte {
	var out strings.Builder
	for i := 0; out.Len() < n-200; i++ {
		fmt.Fprintf(&out, "ok  \texample.com/project/internal/pkg%d\t0.%03ds coverage: 81.%d%% of statements in \"./...\"\n", i, i%1000, i%10)
	}
	b, _ := json.Marshal(Record{Seq: 7, Event: ItemCompleted{Item{"item_3", CommandExecution{Command: "go test ./...", AggregatedOutput: out.String(), Status: Completed}}}})
	return b
}

func BenchmarkMaskJSON(b *testing.B) {
	for _, n := range []int{256, 1 << 10, 64 << 10, 1 << 20} {
		for _, hit := range []bool{false, true} {
			line := logLine(n)
			if hit {
				line = bytes.Replace(line, []byte("statements"), []byte(`p3w-084fed08b978`), 1)
			}
			b.Run(fmt.Sprintf("%d/hit=%v", n, hit), func(b *testing.B) {
				r := fifty()
				b.SetBytes(int64(len(line)))
				b.ReportAllocs()
				for b.Loop() {
					r.MaskJSON(line)
				}
			})
		}
	}
}

func BenchmarkRedactWriter(b *testing.B) {
	for _, n := range []int{80, 4 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := fifty().Writer(io.Discard)
			chunk := bytes.Repeat([]byte("a line of ordinary output, 40 bytes it\n"), n/39+1)[:n]
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				w.Write(chunk)
			}
		})
	}
}

// Masking must not be what a run waits for, and must stay linear: compared with
// decoding the same line, which every event goes through anyway.
func TestMaskingIsCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	r := fifty()
	cost := func(line []byte, f func()) time.Duration {
		best := time.Hour
		for range 7 {
			n := 1 + 1<<18/len(line)
			start := time.Now()
			for range n {
				f()
			}
			best = min(best, time.Since(start)/time.Duration(n))
		}
		return best
	}
	var per [2]float64
	for i, size := range []int{1 << 10, 1 << 20} {
		line := logLine(size)
		mask := cost(line, func() { r.MaskJSON(line) })
		decode := cost(line, func() { var rec Record; _ = json.Unmarshal(line, &rec) })
		per[i] = float64(mask) / float64(len(line))
		t.Logf("%d bytes: masking %v, decoding %v", len(line), mask, decode)
		if mask > 3*decode {
			t.Errorf("masking %d bytes takes %v, decoding them %v", len(line), mask, decode)
		}
	}
	if per[1] > 4*per[0] {
		t.Errorf("not linear: %.2f ns a byte at 1 KiB, %.2f at 1 MiB", per[0], per[1])
	}
	// The prefix that many keys share, over and over.
	hostile := bytes.Repeat([]byte("sk-proj-eyJhbGciOiJSUzI1NiJ9."), 1<<20/29)
	plain := bytes.Repeat([]byte("xy-zzzz-abJhbGciOiJSUzI1NiJ9."), 1<<20/29)
	slow, fast := cost(hostile, func() { r.Mask(string(hostile)) }), cost(plain, func() { r.Mask(string(plain)) })
	t.Logf("hostile %v, plain %v", slow, fast)
	if slow > 40*fast {
		t.Errorf("repeated prefixes take %v, other text %v", slow, fast)
	}
}
