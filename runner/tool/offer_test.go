package tool

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// offered are the names of the tools of the request.
func offered(t *testing.T, r *rig) (names []string, specs string) {
	t.Helper()
	for _, raw := range r.set.Specs() {
		var s struct{ Name string }
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		names, specs = append(names, s.Name), specs+string(raw)
	}
	return names, specs
}

func TestWithoutShell(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.ReadOnly, func(d *Deps, _ *sandbox.Spec) { d.NoShell = true })
	names, _ := offered(t, r)
	if slices.Contains(names, "exec_command") || slices.Contains(names, "write_stdin") || !slices.Contains(names, "apply_patch") {
		t.Errorf("offered: %q", names)
	}
	for _, one := range r.set.Tools() {
		if one.Name() == "exec_command" || one.Name() == "write_stdin" {
			t.Errorf("%s can be called", one.Name())
		}
	}
}

func TestWithoutTerminals(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.ReadOnly, func(d *Deps, _ *sandbox.Spec) { d.NoTerminals = true })
	if _, specs := offered(t, r); strings.Contains(specs, `"tty"`) || !strings.Contains(specs, `"yield_time_ms"`) || !strings.Contains(specs, `"workdir"`) {
		t.Error(specs)
	}
	said, _ := r.exec("tty; true", args{"tty": true})
	wants(t, said, answerOf("0", "not a tty\n"))
}

// A configured limit is the default where it is smaller than the usual one, and
// the most that a call may ask for.
func TestConfiguredBudget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit int64
		asked args
		want  int // tokens that are left of 25 000
	}{
		{0, nil, 10_000}, {0, args{"max_output_tokens": 20_000}, 10_000}, {100, nil, 100}, {100, args{"max_output_tokens": 5_000}, 100},
		{100, args{"max_output_tokens": 50}, 50}, {20_000, nil, 10_000}, {20_000, args{"max_output_tokens": 50_000}, 20_000},
	} {
		r := newRig(t, sandbox.ReadOnly, func(d *Deps, _ *sandbox.Spec) { d.MaxTokens = c.limit })
		asked := []args{}
		if c.asked != nil {
			asked = append(asked, c.asked)
		}
		said, _ := r.exec("head -c 100000 /dev/zero | tr '\\0' x", asked...)
		if got := strings.Count(said, "x"); got < c.want*4-8 || got > c.want*4+8 {
			t.Errorf("limit %d, asked %v: %d characters", c.limit, c.asked, got)
		}
		if _, specs := offered(t, r); c.limit > 0 && strings.Contains(specs, budgetDefault) {
			t.Errorf("limit %d: the tools tell another", c.limit)
		}
	}
}

func TestConfiguredPoll(t *testing.T) {
	t.Parallel()
	for most, want := range map[time.Duration]float64{0: pollMost, time.Second: pollLeast, 7 * time.Second: 7000} {
		if got := (&stdinTool{&Set{deps: Deps{PollMost: most}}}).most(); got != want {
			t.Errorf("%s: %v", most, got)
		}
	}
}
