package rules

import (
	"fmt"
	"runtime/metrics"
	"strings"
	"time"

	"go.starlark.net/starlark"
)

// Bounds of one rules file that counting steps does not give: a single step may
// make a list of any size, and a long expression is read and compiled before
// there are steps.
const (
	// maxHeap is how much memory may be in use more than before, in bytes.
	maxHeap = 512 << 20
	// maxTime is how long a file may take.
	maxTime = 20 * time.Second
	// lookEvery is the time between two looks at both.
	lookEvery = 5 * time.Millisecond
	// maxExpression is the longest expression that no comma divides, in bytes
	// without strings and comments: the compiler recurses over a + b + c + ….
	maxExpression = 64 << 10
	// maxMistakes is how many mistakes of one file are listed.
	maxMistakes = 100
)

// within runs f, which uses thread, and returns "" when it has ended, or which
// bound it broke. f may then go on for a while: what it writes must not be read.
func within(thread *starlark.Thread, f func()) (broken string) {
	before, begun := heapInUse(), time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for broken == "" {
		select {
		case <-done:
			return ""
		case <-tick.C:
		}
		switch {
		case heapInUse() > before+maxHeap:
			broken = fmt.Sprintf("the file takes more than %d MiB of memory", maxHeap>>20)
		case time.Since(begun) > maxTime:
			broken = fmt.Sprintf("the file does not end: it takes more than %s", maxTime)
		}
	}
	thread.Cancel(broken)
	return broken
}

// heapInUse is the memory of live and not yet collected objects. Reading it does
// not stop the program.
func heapInUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// longExpression is the line where an expression begins that is too long to be
// compiled, 0 if there is none.
func longExpression(text string) int {
	type level struct{ line, size int }
	levels := []level{{line: 1}}
	line := 1
	for i := 0; i < len(text); i++ {
		at := &levels[len(levels)-1]
		switch c := text[i]; c {
		case '\n':
			if line++; len(levels) == 1 {
				*at = level{line: line}
			}
		case '\\':
			if strings.HasPrefix(text[i+1:], "\n") {
				line, i = line+1, i+1 // the line goes on
			}
		case '#':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case '"', '\'':
			end, _ := stringEnd(text, i)
			line += strings.Count(text[i:end], "\n")
			i = end - 1
			at.size++
		case '(', '[', '{':
			at.size++
			levels = append(levels, level{line: line})
		case ')', ']', '}':
			if len(levels) > 1 {
				levels = levels[:len(levels)-1]
			}
			levels[len(levels)-1].size++
		case ',', ';':
			*at = level{line: line}
		case ' ', '\t', '\r':
		default:
			at.size++
		}
		if at := levels[len(levels)-1]; at.size > maxExpression {
			return at.line
		}
	}
	return 0
}

// mistakes collects what is wrong with a file, up to maxMistakes.
type mistakes struct {
	list []*Error
	more int
}

func (m *mistakes) add(e *Error) {
	if len(m.list) >= maxMistakes {
		m.more++
		return
	}
	m.list = append(m.list, e)
}

// all are the mistakes, with a word on those that are not listed.
func (m *mistakes) all() []*Error {
	if m.more == 0 {
		return m.list
	}
	last := *m.list[len(m.list)-1]
	last.Message, last.HintText = fmt.Sprintf("%d more mistakes are not listed", m.more), ""
	return append(m.list, &last)
}
