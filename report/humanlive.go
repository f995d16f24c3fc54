package report

import (
	"fmt"
	"time"
)

// style is one of the six ways text looks.
type style string

const (
	styleBold  style = "1"
	styleDim   style = "2"
	styleBad   style = "1;31"
	styleGood  style = "32"
	styleWarn  style = "33"
	styleModel style = "35"
)

func (h *Human) paint(s style, text string) string {
	if !h.o.Color {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// line is a marked line: "label: text". Whatever an argument holds, the text is
// inert and one line.
func (h *Human) line(s style, label, format string, args ...any) string {
	return h.paint(s, PlainLine(label, 60)+":") + " " + PlainLine(fmt.Sprintf(format, args...), 8000) + "\n"
}

// note is a line that brief text leaves out.
func (h *Human) note(label, format string, args ...any) string {
	if h.o.Brief {
		return ""
	}
	return h.line(styleBold, label, format, args...)
}

func (h *Human) hint(text string) string {
	if text == "" {
		return ""
	}
	return "  " + h.paint(styleDim, "hint: "+PlainLine(text, 1000)) + "\n"
}

func (h *Human) begin(id, label string) {
	h.end(id)
	h.working = append(h.working, activity{id, label, time.Now()})
}

func (h *Human) end(id string) {
	for i, a := range h.working {
		if a.id == id {
			h.working = append(h.working[:i], h.working[i+1:]...)
			return
		}
	}
}

// watch starts the goroutine of progress and heartbeat lines.
func (h *Human) watch() {
	every := h.o.Heartbeat
	if h.o.Progress {
		every = time.Second
	}
	if every <= 0 || h.stop != nil {
		return
	}
	h.stop, h.done = make(chan struct{}), make(chan struct{})
	go func(stop <-chan struct{}, done chan<- struct{}) {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				h.beat()
			}
		}
	}(h.stop, h.done)
}

// beat shows what is going on, if anything has been for a while.
func (h *Human) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.working) == 0 {
		return
	}
	a := h.working[len(h.working)-1]
	text := fmt.Sprintf("%s for %s", PlainLine(a.label, 70), time.Since(a.since).Round(time.Second))
	if h.o.Progress {
		h.write("\r\x1b[K" + h.paint(styleDim, "… "+text))
		h.drawn = true
		return
	}
	h.write("… still " + text + "\n")
}
