package skill

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func skillText(name, description string) string {
	return "---\nname: " + name + "\ndescription: " + description + "\n---\nBody of " + name + ".\n"
}

func names(skills []Skill) string {
	var list []string
	for _, s := range skills {
		list = append(list, s.Name+"/"+s.Scope)
	}
	return strings.Join(list, " ")
}

func classes(notices []event.Notice) string {
	var list []string
	for _, n := range notices {
		if n.Message == "" {
			list = append(list, "EMPTY")
		}
		list = append(list, n.Class)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// layout makes one folder of each kind.
func layout(t *testing.T) Options {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		SystemDir: base + "/etc", Home: base + "/home", UserHome: base + "/user",
		ProjectRoot: base + "/p", Cwd: base + "/p/a/b", Trusted: true,
	}
	put(t, base+"/etc/skills/audit/SKILL.md", skillText("audit", "Looks twice."))
	put(t, base+"/home/skills/pack/peel/SKILL.md", skillText("peel", "Peels."))
	put(t, base+"/home/skills/.system/own/SKILL.md", skillText("own", "Built in elsewhere."))
	put(t, base+"/user/.agents/skills/slice/SKILL.md", skillText("slice", "Slices."))
	put(t, base+"/p/.agents/skills/core/SKILL.md", skillText("core", "Cores, far."))
	put(t, base+"/p/a/.codex/skills/core/SKILL.md", skillText("core", "Cores, near."))
	put(t, base+"/p/a/b/.codex/skills/stew/SKILL.md", skillText("stew", "Stews."))
	put(t, base+"/p/a/b/.codex/skills/stew/deeper/SKILL.md", "part of the skill above")
	put(t, base+"/p/a/b/c/.codex/skills/below/SKILL.md", skillText("below", "Too deep."))
	put(t, base+"/.codex/skills/above/SKILL.md", skillText("above", "Above the project."))
	return o
}

func TestFind(t *testing.T) {
	o := layout(t)
	skills, notices := Find(o)
	if got := names(skills); got != "audit/system core/project peel/user slice/user stew/project" {
		t.Errorf("skills: %s", got)
	}
	if got := classes(notices); got != "skill_shadowed" {
		t.Errorf("notices: %+v", notices)
	}
	if i := slices.IndexFunc(skills, func(s Skill) bool { return s.Name == "core" }); skills[i].Description != "Cores, near." {
		t.Errorf("the farther skill won: %+v", skills[i])
	}
	o.Disabled = []string{"core", "audit"}
	if skills, _ = Find(o); names(skills) != "peel/user slice/user stew/project" {
		t.Errorf("with two disabled: %s", names(skills))
	}
	// By place, as the configuration may name them: the file, or its folder through a link.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(o.Home, "skills"), link); err != nil {
		t.Fatal(err)
	}
	o.Disabled = []string{filepath.Join(o.SystemDir, "skills/audit/SKILL.md"), filepath.Join(link, "pack/peel"), "/no/where/SKILL.md"}
	if skills, _ = Find(o); names(skills) != "core/project slice/user stew/project" {
		t.Errorf("with two disabled by their place: %s", names(skills))
	}
}

func TestUntrustedProject(t *testing.T) {
	o := layout(t)
	o.Trusted = false
	skills, notices := Find(o)
	if names(skills) != "audit/system peel/user slice/user" || classes(notices) != "skill_untrusted skill_untrusted skill_untrusted" {
		t.Errorf("%s; %+v", names(skills), notices)
	}
}

func TestWhatIsLeftOutIsSaid(t *testing.T) {
	o := layout(t)
	at := func(name string) string { return filepath.Join(o.ProjectRoot, ".codex/skills", name, "SKILL.md") }
	put(t, at("plain"), "no front matter\n")
	put(t, at("open"), "---\nname: open\ndescription: x\n")
	put(t, at("name less"), "---\ndescription: x\n---\n")
	put(t, at("mute"), "---\nname: mute\n---\n")
	put(t, at("path"), skillText("../x", "A path."))
	put(t, at("huge"), skillText("huge", "x")+strings.Repeat("x", maxFile))
	put(t, filepath.Join(o.SystemDir, "secret/SKILL.md"), skillText("secret", "Outside."))
	if err := os.MkdirAll(filepath.Dir(at("fifo")), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		filepath.Dir(at("linkdir")): filepath.Join(o.SystemDir, "secret"),
		filepath.Dir(at("loop")):    o.ProjectRoot + "/.codex/skills",
		filepath.Dir(at("inside")):  o.ProjectRoot + "/.agents/skills/core",
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(at("linkfile")), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(o.SystemDir, "secret/SKILL.md"), at("linkfile")); err != nil {
		t.Fatal(err)
	}
	skills, notices := Find(o)
	if got := names(skills); got != "audit/system core/project peel/user slice/user stew/project" {
		t.Errorf("skills: %s", got)
	}
	want := "skill_invalid skill_invalid skill_invalid skill_invalid skill_invalid skill_outside skill_outside skill_shadowed skill_unreadable skill_unreadable"
	if got := classes(notices); got != want {
		t.Errorf("notices:\n got %s\nwant %s\n%+v", got, want, notices)
	}
}

func TestFrontMatter(t *testing.T) {
	for _, c := range []struct{ in, name, description string }{
		{"---\nname: a\ndescription: plain text\n---\n", "a", "plain text"},
		{"\uFEFF---\r\nname: \"a-b\"\r\ndescription: 'it''s: quoted' # why\r\n---\r\nx", "a-b", "it's: quoted"},
		{"---\n# c\nname: a # c\ndescription: >-\n  folded\n  text\n\nlicense: MIT\n---\n", "a", "folded text"},
		{"---\ndescription: |\n  one\n\n  two\nname: a\n---\n", "a", "one two"},
		{"---\nname: a\ndescription: \"tab\\t\\u00e9 \\\"x\\\"\"\nmetadata:\n  name: other\n  description: other\ntags: [x, y]\nlist:\n- name: z\n---\n", "a", "tab é \"x\""},
		{"---\nname: a\ndescription: continued\n  on the next line\n---\n", "a", "continued on the next line"},
		{"---\nname: ns:a_1\ndescription: " + strings.Repeat("é", 600) + "\n---\n", "ns:a_1", strings.Repeat("é", 510) + "…"},
		{"---\ndescription: x\n---\n", "folder", "x"}, {"---\nname:\ndescription: x\n---\n", "folder", "x"},
		{"", "", ""}, {"---", "", ""}, {"---\n---\n", "", ""}, {"--- x\nname: a\n---", "", ""},
		{"---\nname: a\ndescription: 'open\n---\n", "", ""}, {"---\nname: a\njust words\ndescription: x\n---\n", "", ""},
		{"---\nname: a b\ndescription: x\n---\n", "", ""}, {"---\nname: -a\ndescription: x\n---\n", "", ""},
		{"---\nname: a\ndescription: \"\\q\"\n---\n", "", ""}, {"---\nname: a\ndescription: {x: y}\n---\n", "", ""},
	} {
		name, description, err := frontMatter(c.in, "folder")
		if name != c.name || description != c.description || (err == nil) != (c.name != "") {
			t.Errorf("%q: %q, %q, %v", c.in, name, description, err)
		}
	}
}

func TestPromptTexts(t *testing.T) {
	o := layout(t)
	skills, _ := Find(o)
	list := Listing(skills)
	for _, s := range skills {
		if !strings.Contains(list, "- "+s.Name+": "+s.Description+" (file: "+s.Path+")\n") {
			t.Errorf("%s is not listed:\n%s", s.Name, list)
		}
	}
	if strings.Contains(list, "Body of") || !strings.HasPrefix(list, "<skills_instructions>\n") || !strings.HasSuffix(list, "</skills_instructions>") {
		t.Errorf("listing:\n%s", list)
	}
	if Listing(nil) != "" {
		t.Error("a list of nothing")
	}
	many := make([]Skill, 60)
	for i := range many {
		many[i] = Skill{Name: "n", Description: strings.Repeat("d", 1000), Path: "/p"}
	}
	if l := Listing(many); len(l) > maxListing+2000 || !strings.Contains(l, "more that are not listed") {
		t.Errorf("a long list takes %d bytes", len(l))
	}
	for prompt, want := range map[string]string{
		"use $peel and $core, then $peel": "peel core", "$stew: go": "stew", "($slice)": "slice", "$HOME $$peel \\$peel US$peel $peeler $": "",
		"«$audit-»": "audit",
	} {
		var got []string
		for _, s := range named(prompt, skills) {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q names %q, want %q", prompt, got, want)
		}
	}
	texts, notices := Mentioned("$peel", skills)
	path := o.Home + "/skills/pack/peel/SKILL.md"
	if want := "<skill>\n<name>peel</name>\n<path>" + path + "</path>\n" + skillText("peel", "Peels.") + "\n</skill>"; len(texts) != 1 || texts[0] != want || notices != nil {
		t.Errorf("got %q, want %q", texts, want)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if texts, notices = Mentioned("$peel", skills); texts != nil || classes(notices) != "skill_unreadable" {
		t.Errorf("a removed skill: %q, %+v", texts, notices)
	}
}

func FuzzFrontMatter(f *testing.F) {
	f.Add(skillText("a", "b"))
	f.Add("---\nname: \"a\\\"\ndescription: >\n x\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		name, description, err := frontMatter(strings.ToValidUTF8(text, ""), "folder")
		if err != nil {
			return
		}
		if !isName(name) || len(name) > maxNameLen || description == "" || len(description) > maxDescript || strings.ContainsAny(description, "\n\r\t") {
			t.Errorf("name %q, description %q", name, description)
		}
		if got := named("x $"+name+" y", []Skill{{Name: name}}); len(got) != 1 {
			t.Errorf("$%s is not found in a prompt", name)
		}
	})
}
