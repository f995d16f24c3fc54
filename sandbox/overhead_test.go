//go:build linux

package sandbox

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// What confinement costs, as ratios, with everything that is compared measured in
// turn: machines are noisy. It runs when asked for only (.ci/lanes/slow-overhead.sh):
//
//	NIGHTSHIFT_OVERHEAD=1 REFERENCE=/path/to/codex go test ./sandbox -run TestOverhead -v

// rounds of a measurement; also the number of calls of which the last must be as
// fast as the first.
const rounds = 200

func TestOverhead(t *testing.T) {
	if os.Getenv("NIGHTSHIFT_OVERHEAD") == "" {
		t.Skip("not asked for: NIGHTSHIFT_OVERHEAD=1")
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames, Limits: DefaultLimits(), Deny: homeSecrets(ws)})
	run := func(argv ...string) func() {
		return func() {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = ws, []string{"PATH=/usr/bin:/bin", "HOME=" + ws, "CODEX_HOME=" + ws + "/home"}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", argv, err, out)
			}
		}
	}
	if err := os.Mkdir(ws+"/home", 0o755); err != nil {
		t.Fatal(err)
	}
	programs := []struct {
		name string
		once func()
		took []time.Duration
	}{
		{name: "plain", once: run("/bin/true")},
		{name: "confined", once: func() {
			p, err := b.Start(t.Context(), Command{Argv: []string{"/bin/true"}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, p.Output()); err != nil {
				t.Fatal(err)
			}
			if x, err := p.Wait(); err != nil || x.Code != 0 {
				t.Fatal(x, err)
			}
		}},
		{name: "bubblewrap", once: run(bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
			"--tmpfs", "/tmp", "--tmpfs", "/run", "--bind", ws, ws, "/bin/true")},
	}
	if ref := os.Getenv("REFERENCE"); ref != "" {
		programs = append(programs, struct {
			name string
			once func()
			took []time.Duration
		}{name: "reference", once: run(ref, "sandbox", "--", "true")})
	}
	for range rounds {
		for i := range programs {
			p := &programs[i]
			began := time.Now()
			p.once()
			p.took = append(p.took, time.Since(began))
		}
	}
	of := map[string]time.Duration{}
	for _, p := range programs {
		of[p.name] = median(p.took)
		t.Logf("%-12s median %8s, first twenty %8s, last twenty %8s", p.name, of[p.name], median(p.took[:20]), median(p.took[len(p.took)-20:]))
	}
	ratio := func(name string, most float64, a, b time.Duration) {
		r := float64(a) / float64(b)
		t.Logf("%-40s %.2f, at most %.2f", name, r, most)
		if r > most {
			t.Errorf("%s: %.2f is more than %.2f", name, r, most)
		}
	}
	ratio("confined / bubblewrap", 2, of["confined"], of["bubblewrap"])
	if ref, ok := of["reference"]; ok {
		ratio("confined / the reference's", 0.2, of["confined"], ref)
	}
	took := programs[1].took
	ratio("last twenty of 200 calls / first twenty", 1.5, median(took[len(took)-20:]), median(took[:20]))
}

func median(list []time.Duration) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
