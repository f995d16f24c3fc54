package policy

import (
	"strings"
	"testing"
)

// Zero is no bound, but for rounds, where it is the tightest one.
func TestBoundsOfZero(t *testing.T) {
	for _, c := range []struct {
		config, requirements string
		turns, rounds        int
		fails                string
	}{
		{requirements: "[limits]\nmax_turns = 5\n", turns: 5, rounds: 3},
		{config: "[limits]\nmax_turns = 0\n", requirements: "[limits]\nmax_turns = 5\n", turns: 5, rounds: 3},
		{requirements: "[limits]\nmax_turns = 0\n", fails: "limits.max_turns is 0, which bounds nothing"},
		{requirements: "[limits]\nmax_wall_time = \"0s\"\n", fails: "limits.max_wall_time is 0"},
		{requirements: "[limits]\nmax_cost_usd = 0.0\n", fails: "limits.max_cost_usd is 0"},
		{requirements: "[sandbox]\nmemory = \"0\"\n", fails: "sandbox.memory is 0"},
		{requirements: "[limits]\nverify_rounds = 0\n", rounds: 0},
		{config: "[limits]\nverify_rounds = 0\n", requirements: "[limits]\nverify_rounds = 2\n", rounds: 0},
		{config: "[limits]\nverify_rounds = 7\n", requirements: "[limits]\nverify_rounds = 2\n", rounds: 2},
	} {
		m := newMachine(t)
		m.write("home/config.toml", c.config)
		m.write("etc/requirements.toml", c.requirements)
		p, err := Load(m.sources())
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q: %v", c.requirements, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.requirements, err)
			continue
		}
		if l := p.Config().Limits; l.MaxTurns != c.turns || l.VerifyRounds != c.rounds {
			t.Errorf("%q under %q: %+v", c.config, c.requirements, l)
		}
	}
}
