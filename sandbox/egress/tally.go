package egress

import "sync"

// A command that asks for the same host in a loop must not fill the log: after
// tellEach occurrences only every doubling is logged. Beyond maxKinds different
// ones, hosts are summed up.
const (
	tellEach = 10
	maxKinds = 2000
)

// tally counts outcomes and tells them.
type tally struct {
	mu    sync.Mutex
	log   func(Outcome)
	kinds map[Outcome]*count
}

type count struct{ seen, told int }

func (t *tally) add(o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.log == nil {
		return
	}
	if t.kinds == nil {
		t.kinds = map[Outcome]*count{}
	}
	kind := o
	kind.Addr = ""
	c := t.kinds[kind]
	if c == nil && len(t.kinds) >= maxKinds {
		kind = Outcome{Host: "(others)", Decision: Decision{Allowed: o.Allowed, Rule: o.Rule, Origin: o.Origin}}
		o, c = kind, t.kinds[kind]
	}
	if c == nil {
		c = &count{}
		t.kinds[kind] = c
	}
	c.seen++
	if c.seen > tellEach && c.seen < 2*c.told {
		return
	}
	t.tell(o, c)
}

func (t *tally) tell(o Outcome, c *count) {
	o.Count, o.Since = c.seen, c.seen-c.told
	c.told = c.seen
	t.log(o)
}

// finish tells the final numbers.
func (t *tally) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for o, c := range t.kinds {
		if c.seen > c.told {
			t.tell(o, c)
		}
	}
}
