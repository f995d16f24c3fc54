package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine is a set of folders to load a policy from.
type machine struct {
	t                     testing.TB
	etc, home, work, user string
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	base := Disk{}.RealPath(t.TempDir())
	m := &machine{
		t:    t,
		etc:  filepath.Join(base, "etc"),
		home: filepath.Join(base, "home"),
		work: filepath.Join(base, "work"),
		user: filepath.Join(base, "user"),
	}
	for _, d := range []string{m.etc, m.home, filepath.Join(m.work, ".git"), m.user} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// write puts a file at "etc/…", "home/…" or "work/…".
func (m *machine) write(name, text string) string {
	m.t.Helper()
	place, rest, _ := strings.Cut(name, "/")
	path := filepath.Join(map[string]string{"etc": m.etc, "home": m.home, "work": m.work, "user": m.user}[place], rest)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machine) sources() Sources {
	return Sources{Files: Disk{}, SystemDir: m.etc, Home: m.home, UserHome: m.user, Cwd: m.work, GitRoot: m.work, Hostname: "build-7"}
}

// flags fills what the command line would.
func flags(t testing.TB, s Sources, args []string) (Sources, error) {
	t.Helper()
	for i := 0; i < len(args); i++ {
		value := func() string { i++; return args[i] }
		switch args[i] {
		case "-c":
			o, err := ParseOverride(value())
			if err != nil {
				return s, err
			}
			s.Overrides = append(s.Overrides, o)
		case "--enable":
			name := value()
			s.Overrides = append(s.Overrides, Override{Key: "features." + name, Value: "true", Flag: "--enable " + name})
		case "-s":
			s.Flags.Sandbox = value()
		case "-m":
			s.Flags.Model = value()
		case "-p":
			s.Profile = value()
		case "--requirements":
			s.Requirements = append(s.Requirements, value())
		case "--trust":
			s.Overrides = append(s.Overrides, Override{Key: fmt.Sprintf("projects.%q.trust_level", s.Cwd), Value: `"trusted"`, Flag: "--trust"})
		case "--ignore-user-config":
			s.IgnoreUser = true
		case "--ignore-rules":
			s.IgnoreRules = true
		case "--strict-config":
			s.Strict = true
		case "--approve-for-me":
			s.Flags.ApproveForMe = true
		case "--dangerously-bypass-approvals-and-sandbox":
			s.Flags.Bypass = true
		default:
			t.Fatalf("unknown argument %q", args[i])
		}
	}
	return s, nil
}

type requirementCase struct {
	ID       string            `json:"id"`
	Layers   map[string]string `json:"layers"`
	Args     []string          `json:"args"`
	Trust    string            `json:"project_trust"`
	Observed struct {
		Exit      int      `json:"exit"`
		Approval  string   `json:"approval"`
		Sandbox   string   `json:"sandbox"`
		Web       string   `json:"web_search"`
		Model     string   `json:"model"`
		Residency string   `json:"residency_header"`
		Notices   []string `json:"notices"`
	} `json:"observed"`
	Stricter string `json:"stricter"`
}

// ourAnswers are the answers of this project where they differ from the
// reference's; see the file.
type ourAnswers struct {
	Usage []string
	Cases map[string]struct {
		Exit    int
		Sandbox string
		Web     string
	}
}

func TestRequirementCases(t *testing.T) {
	data, err := os.ReadFile("testdata/requirements-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct{ Cases []requirementCase }
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	data, err = os.ReadFile("testdata/requirements-ours.json")
	if err != nil {
		t.Fatal(err)
	}
	var ours ourAnswers
	if err := json.Unmarshal(data, &ours); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) < 45 {
		t.Fatalf("only %d cases", len(table.Cases))
	}
	for _, c := range table.Cases {
		t.Run(c.ID, func(t *testing.T) {
			m := newMachine(t)
			for name, text := range c.Layers {
				m.write(name, text)
			}
			if c.Trust != "" {
				config := c.Layers["home/config.toml"] + "\n[projects.\"" + m.work + "\"]\ntrust_level = \"" + c.Trust + "\"\n"
				m.write("home/config.toml", config)
			}
			mine, differs := ours.Cases[c.ID]
			if differs != (c.Stricter != "") && c.ID != "remote-sandbox" {
				t.Errorf("the table says stricter %q, and ours says %v", c.Stricter, differs)
			}
			wantExit := 0
			switch {
			case mine.Exit != 0:
				wantExit = mine.Exit
			case c.Observed.Exit != 0 && slices.Contains(ours.Usage, c.ID):
				wantExit = 2
			case c.Observed.Exit != 0:
				wantExit = 3
			}
			src, err := flags(t, m.sources(), c.Args)
			var p *Policy
			if err == nil {
				p, err = Load(src)
			}
			exit := 0
			var all *Errors
			var one *Error
			switch {
			case errors.As(err, &all):
				exit = 2 + int(all.Kind())
			case errors.As(err, &one):
				exit = 2
			case err != nil:
				t.Fatal(err)
			}
			if exit != wantExit {
				t.Fatalf("exit %d, want %d: %v", exit, wantExit, err)
			}
			if exit != 0 {
				return
			}
			cfg := p.Config()
			want := c.Observed
			if mine.Sandbox != "" {
				want.Sandbox = mine.Sandbox
			}
			if mine.Web != "" {
				want.Web = mine.Web
			}
			if want.Model == "m-default" {
				want.Model = "gpt-5.5"
			}
			if cfg.SandboxMode != want.Sandbox || cfg.WebSearch != want.Web || cfg.ApprovalPolicy != want.Approval || cfg.Model != want.Model ||
				cfg.Residency != want.Residency {
				t.Errorf("got %s %s %s %s %q, want %+v", cfg.SandboxMode, cfg.WebSearch, cfg.ApprovalPolicy, cfg.Model, cfg.Residency, want)
			}
			for _, text := range want.Notices {
				text = strings.ReplaceAll(strings.ReplaceAll(text, "<HOME>", m.home), "<WORK>", m.work)
				text = strings.ReplaceAll(text, "/etc/codex", m.etc)
				found := slices.ContainsFunc(p.Notices(), func(n Notice) bool {
					return strings.Join(strings.Fields(n.Wire), " ") == strings.Join(strings.Fields(text), " ")
				})
				if !found && !differs && !strings.HasPrefix(text, "Untrusted project-local") {
					t.Errorf("no notice with the wire text %q in %+v", text, p.Notices())
				}
			}
			if len(want.Notices) > 0 && len(p.Notices()) == 0 {
				t.Errorf("the reference tells %q, and nothing is said here", want.Notices)
			}
		})
	}
}
