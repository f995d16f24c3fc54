package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHooks(t *testing.T) {
	group := func(event, command string) string {
		return fmt.Sprintf("[[hooks.%s]]\nmatcher = \"x\"\n[[hooks.%s.hooks]]\ntype = \"command\"\ncommand = %q\n", event, event, command)
	}
	files := map[string]string{
		"etc/config.toml":         group("PreToolUse", "system"),
		"home/config.toml":        group("PreToolUse", "user") + group("Stop", "stop"),
		"etc/requirements.toml":   group("SessionStart", "required"),
		"etc/managed_config.toml": group("PostToolUse", "managed"),
		"home/hooks.json":         `{"hooks": {"PreToolUse": [{"matcher": "^Bash$", "hooks": [{"type": "command", "command": "json", "timeout": 3}]}]}}`,
	}
	names := func(p *Policy) (out []string) {
		for _, h := range p.Config().Hooks {
			out = append(out, fmt.Sprintf("%s %s %s %v", h.Event, h.Command, h.OnError, h.Managed))
		}
		return out
	}
	if got, want := names(load(t, files)), []string{"SessionStart required continue true", "PreToolUse system block true", "PreToolUse user block false", "Stop stop continue false", "PostToolUse managed continue true", "PreToolUse json block false"}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	off := func(s *Sources) {
		s.Overrides = append(s.Overrides, Override{Key: "features.hooks", Value: "false", Flag: "--disable hooks"})
	}
	managed := []string{"SessionStart required continue true", "PreToolUse system block true", "PostToolUse managed continue true"}
	p := load(t, files, off)
	if got := names(p); !slices.Equal(got, managed) {
		t.Errorf("with hooks off: %q", got)
	}
	if !slices.ContainsFunc(p.Notices(), func(n Notice) bool { return n.Class == "hooks_off" }) {
		t.Error("nothing is said about hooks that are off")
	}
	files["etc/requirements.toml"] = "allow_managed_hooks_only = true\n" + files["etc/requirements.toml"]
	if got := names(load(t, files)); !slices.Equal(got, managed) {
		t.Errorf("with managed hooks only: %q", got)
	}
}

// TestRulesFiles: which files count, and that broken ones stop the run.
func TestRulesFiles(t *testing.T) {
	m := newMachine(t)
	m.write("etc/rules/a.rules", `prefix_rule(pattern=["system"], decision="forbidden")`)
	m.write("home/rules/a.rules", `prefix_rule(pattern=["user"], decision="forbidden")`)
	m.write("home/rules/b.txt", `nonsense`)
	m.write("home/rules/sub/c.rules", `prefix_rule(`)
	m.write("home/rules/folder.rules/d.rules", `prefix_rule(`)
	m.write("work/.codex/rules/p.rules", `prefix_rule(`)
	p, err := Load(m.sources())
	if err != nil {
		t.Fatal(err)
	}
	levels := func(p *Policy) string {
		return fmt.Sprint(p.Command([]string{"system"}).Level, p.Command([]string{"user"}).Level)
	}
	if got := levels(p); got != "forbidden forbidden" {
		t.Errorf("levels: %s", got)
	}
	src := m.sources()
	src.IgnoreRules = true
	if p, err = Load(src); err != nil || levels(p) != "forbidden none" {
		t.Errorf("ignoring rules: %v %s", err, levels(p))
	}
	m.write("home/config.toml", "[projects.\""+m.work+"\"]\ntrust_level = \"trusted\"\n")
	if _, err = Load(m.sources()); err == nil || !strings.Contains(err.Error(), "p.rules:1:") {
		t.Errorf("broken rules of a trusted project: %v", err)
	}
	if os.Getuid() != 0 {
		path := m.write("home/rules/closed.rules", "x")
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, err = Load(m.sources()); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("rules that cannot be read: %v", err)
		}
	}
	m2 := newMachine(t)
	m2.write("home/rules", "a file")
	var all *Errors
	if _, err = Load(m2.sources()); err == nil || !asErrors(err, &all) || all.Kind() != KindPolicy {
		t.Errorf("rules is a file: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(m2.etc, "config.toml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err = Load(m2.sources()); err == nil || !strings.Contains(err.Error(), "config.toml: cannot be read") {
		t.Errorf("config.toml is a folder: %v", err)
	}
}

func asErrors(err error, target **Errors) bool {
	e, ok := err.(*Errors) //nolint:errorlint // Load returns it unwrapped
	*target = e
	return ok
}

// TestErrors: the text of errors, alone and together.
func TestErrors(t *testing.T) {
	e := &Errors{
		List: []*Error{
			{File: "f", Line: 2, Column: 3, Message: "bad"},
			{Message: "worse", HintText: "do it", Kind: KindPolicy},
			{File: "g", Message: "unreadable"},
		},
	}
	if e.Error() != "f:2:3: bad\nworse\ng: unreadable" || e.Hint() != "do it" || e.Kind() != KindPolicy || len(e.Unwrap()) != 3 {
		t.Errorf("%q %q %v", e.Error(), e.Hint(), e.Kind())
	}
}

// FuzzLoad: whatever stands in the files, Load gives a policy or errors with
// texts, and a further requirements file never widens.
func FuzzLoad(f *testing.F) {
	vectors, err := filepath.Glob("testdata/vectors/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range vectors {
		data, err := os.ReadFile(v)
		if err != nil {
			f.Fatal(err)
		}
		_, text, _ := strings.Cut(string(data), "--\n")
		text, _, _ = strings.Cut(text, "\n-- ")
		f.Add(text+"\n", "allowed_sandbox_modes = [\"read-only\"]\n")
		f.Add("sandbox_mode = \"workspace-write\"\n", text+"\n")
	}
	f.Fuzz(func(t *testing.T, config, requirements string) {
		files := inMemory(map[string]string{"/work/repo/.git/HEAD": "x", "/home/u/.codex/config.toml": config})
		before, errBefore := Load(files.sources())
		src := files.with("/reqs/x.toml", requirements).sources()
		src.Requirements = []string{"/reqs/x.toml"}
		after, errAfter := Load(src)
		for _, err := range []error{errBefore, errAfter} {
			var all *Errors
			if err == nil {
				continue
			}
			if !asErrors(err, &all) {
				t.Fatalf("not an *Errors: %v", err)
			}
			for _, e := range all.List {
				if e.Message == "" || e.Line < 0 {
					t.Errorf("an error without text: %+v", e)
				}
			}
		}
		if errBefore != nil && errAfter == nil {
			t.Errorf("requirements made a refused configuration load: %v", errBefore)
		}
		if errBefore != nil || errAfter != nil {
			return
		}
		if _, err := before.Permissions("/work/repo"); err != nil {
			return
		}
		if out := widened(viewOf(t, before), viewOf(t, after)); out != nil {
			t.Errorf("requirements widened: %q", out)
		}
		if before.PermissionsText() == "" {
			t.Error("no text for the model")
		}
		for _, k := range before.Keys() {
			if _, err := json.Marshal(before.Explain(k)); err != nil {
				t.Errorf("%s cannot be explained: %v", k, err)
			}
		}
	})
}

// BenchmarkLoad loads 5,000 rules and 50 layers.
func BenchmarkLoad(b *testing.B) {
	content := map[string]string{"/work/repo/.git/HEAD": "x"}
	var trusted strings.Builder
	trusted.WriteString("model = \"x\"\n[projects.\"/work/repo\"]\ntrust_level = \"trusted\"\n")
	content["/home/u/.codex/config.toml"] = trusted.String()
	for i := range 20 {
		var text strings.Builder
		for n := range 250 {
			fmt.Fprintf(&text, "prefix_rule(pattern=[\"tool%d\", \"push%d\"], decision=\"forbidden\", justification=\"Not from CI.\")\n", i, n)
		}
		content[fmt.Sprintf("/home/u/.codex/rules/%d.rules", i)] = text.String()
	}
	dir := "/work/repo"
	for i := range 25 {
		content[dir+"/.codex/config.toml"] = fmt.Sprintf(
			"model = \"m%d\"\n[limits]\nmax_turns = %d\n[mcp_servers.s%d]\ncommand = \"x\"\n",
			i,
			1000-i,
			i,
		)
		dir += fmt.Sprintf("/d%d", i)
	}
	var reqs []string
	for i := range 22 {
		name := fmt.Sprintf("/reqs/%d.toml", i)
		content[name] = fmt.Sprintf(
			"allowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\n[limits]\nmax_turns = %d\n[[rules.prefix_rules]]\npattern = [{ token = \"x%d\" }]\ndecision = \"forbidden\"\n",
			500-i,
			i,
		)
		reqs = append(reqs, name)
	}
	src := inMemory(content).sources()
	src.Cwd, src.Requirements = dir, reqs
	p, err := Load(src)
	if err != nil {
		b.Fatal(err)
	}
	if n := len(p.Rules().Rules()); n != 5022 || len(p.Layers()) < 47 {
		b.Fatalf("%d rules, %d layers", n, len(p.Layers()))
	}
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Load(src); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("small", func(b *testing.B) {
		small := inMemory(map[string]string{"/work/repo/.git/HEAD": "x", "/home/u/.codex/config.toml": "model = \"x\"\n"}).sources()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Load(small); err != nil {
				b.Fatal(err)
			}
		}
	})
}
