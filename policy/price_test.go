package policy

import (
	"errors"
	"testing"
)

// A limit on money that cannot be kept is a mistake of whoever set it.
func TestLimitWithoutPrice(t *testing.T) {
	for file, want := range map[string]ErrorKind{"home/config.toml": KindUsage, "etc/requirements.toml": KindPolicy} {
		content := map[string]string{"/work/repo/.git/HEAD": "x", places.Replace(file): "[limits]\nmax_cost_usd = 5\n"}
		_, err := Load(inMemory(content).sources())
		var many *Errors
		if !errors.As(err, &many) || len(many.List) != 1 || many.Kind() != want {
			t.Errorf("%s: %v", file, err)
		}
	}
}
