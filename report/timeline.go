package report

import (
	"fmt"
	"time"
)

// chart is the timeline of a run, in the units of its 1000 wide view box.
type chart struct {
	Height int
	Lanes  []lane
	Bars   []bar
	Ticks  []tick
}

type lane struct {
	Label    string
	Y, TextY int
}

type bar struct {
	Class, Title string
	X, W         string
	Y            int
}

type tick struct {
	X, Label string
	Anchor   string // of the label: the last one must not leave the picture
	Y, TextY int
}

const (
	chartLeft  = 120.0
	chartWidth = 870.0
	laneHeight = 20
	maxBars    = 600 // of one kind; more would be a solid block
	maxLanes   = 8   // of tool calls that overlap
)

// chartOf lays out turns, model calls and tool calls; calls that overlap stand
// in lanes of their own.
func chartOf(s *Summary) *chart {
	total := max(s.EndedAt.Sub(s.StartedAt), time.Millisecond)
	c := &chart{}
	place := func(y int, class, title string, at time.Time, ms int64) {
		x := chartLeft + chartWidth*clamp(float64(at.Sub(s.StartedAt))/float64(total))
		w := max(chartWidth*clamp(float64(millis(ms))/float64(total)), 1.5)
		w = min(w, chartLeft+chartWidth-x+1.5)
		c.Bars = append(c.Bars, bar{class, title, fmt.Sprintf("%.1f", x), fmt.Sprintf("%.1f", w), y})
	}
	y := 8
	row := func(label string) int {
		c.Lanes = append(c.Lanes, lane{label, y, y + 12})
		at := y + 2
		y += laneHeight
		return at
	}
	at := row("turns")
	for i, t := range s.Turns {
		if i < maxBars {
			place(at, "turn", fmt.Sprintf("turn %d: %s, %s", t.Number, t.Status, round(millis(t.DurationMS))), t.StartedAt, t.DurationMS)
		}
	}
	at = row("model")
	for i, m := range s.ModelCalls {
		if i < maxBars {
			class := "model"
			if m.Status != "completed" {
				class = "fail"
			}
			place(at, class, fmt.Sprintf("request %d: %s, %s tokens, %s", m.Request, PlainLine(m.Model, 80), thousands(m.Usage.Total()), round(millis(m.DurationMS))), m.StartedAt, m.DurationMS)
		}
	}
	toolBars(s, row, place)
	for i := range 6 {
		f := float64(i) / 5
		anchor := "middle"
		if i == 5 {
			anchor = "end"
		}
		c.Ticks = append(c.Ticks, tick{fmt.Sprintf("%.1f", chartLeft+chartWidth*f), round(time.Duration(f * float64(total))).String(), anchor, y + 2, y + 16})
	}
	c.Height = y + 24
	return c
}

func toolBars(s *Summary, row func(string) int, place func(int, string, string, time.Time, int64)) {
	var ends []time.Time // of each lane
	var at []int
	for i, t := range s.ToolCalls {
		if i == maxBars {
			return
		}
		n := 0
		for n < len(ends) && n < maxLanes-1 && ends[n].After(t.StartedAt) {
			n++
		}
		if n == len(ends) {
			label := "tools"
			if n > 0 {
				label = ""
			}
			ends = append(ends, time.Time{})
			at = append(at, row(label))
		}
		ends[n] = t.StartedAt.Add(millis(t.DurationMS))
		class := "tool"
		if t.Status == "failed" || t.Status == "declined" {
			class = "fail"
		}
		place(at[n], class, PlainLine(fmt.Sprintf("%s: %s (%s, %s)", t.Tool, t.Title, t.Status, round(millis(t.DurationMS))), 300), t.StartedAt, t.DurationMS)
	}
}

func clamp(f float64) float64 { return min(max(f, 0), 1) }
