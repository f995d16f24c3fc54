package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

func noticeClasses(list []event.Notice) string {
	var s []string
	for _, n := range list {
		s = append(s, n.Class+" "+filepath.Base(n.Origin))
	}
	return strings.Join(s, ", ")
}

func loaded(list []event.InstructionsLoaded) string {
	var s []string
	for _, l := range list {
		s = append(s, fmt.Sprintf("%s:%d-%d%s", filepath.Base(l.Path), l.Bytes, l.LostBytes, l.Ref))
	}
	return strings.Join(s, ", ")
}

// The texts of rows marked (*) were compared with what the reference sends.
func TestInstructionsChain(t *testing.T) {
	for _, c := range []struct {
		name           string
		home, project  map[string]string
		dir            string
		fallbacks      []string
		max            int
		skip           bool
		text           string // between the tags; "" for no message at all
		loaded, notice string
	}{
		{name: "nothing", max: 100},
		{
			name: "(*) home, root, blank, override", max: 32768, dir: "sub/deep",
			home:    map[string]string{"AGENTS.md": "  global text \n\n", "AGENTS.override.md": "   \n"},
			project: map[string]string{"AGENTS.md": "root doc\n\n", "sub/AGENTS.md": " \n", "sub/deep/AGENTS.override.md": "deep override", "sub/deep/AGENTS.md": "deep"},
			text:    "global text\n\n--- project-doc ---\n\nroot doc\n\n\n\ndeep override",
			loaded:  "AGENTS.md:16-0, AGENTS.md:10-0, AGENTS.override.md:13-0",
		},
		{
			name: "home only, override wins", max: 32768, home: map[string]string{"AGENTS.md": "a", "AGENTS.override.md": "b"},
			text: "b", loaded: "AGENTS.override.md:1-0",
		},
		{
			name: "0 switches project files off", max: 0, home: map[string]string{"AGENTS.md": "a"}, project: map[string]string{"AGENTS.md": "p"},
			text: "a", loaded: "AGENTS.md:1-0",
		},
		{
			name: "fallbacks, below and beside not read, exact case", max: 100, dir: "sub", fallbacks: []string{"CLAUDE.md", "../AGENTS.md", "OTHER.md"},
			project: map[string]string{"CLAUDE.md": "c", "OTHER.md": "o", "sub/agents.md": "small", "sub/OTHER.md": "o2", "sub/x/AGENTS.md": "below", "beside/AGENTS.md": "beside"},
			text:    "c\n\no2", loaded: "CLAUDE.md:1-0, OTHER.md:2-0",
		},
		{
			name: "(*) cut inside a character", max: 5, dir: "sub", project: map[string]string{"AGENTS.md": "abc", "sub/AGENTS.md": "ééé"},
			text: "abc\n\né", loaded: "AGENTS.md:3-0, AGENTS.md:2-4", notice: "instructions_truncated AGENTS.md",
		},
		{
			name: "(*) cut leaves half a character", max: 4, dir: "sub", project: map[string]string{"AGENTS.md": "abc", "sub/AGENTS.md": "é"},
			text: "abc\n\n\uFFFD", loaded: "AGENTS.md:3-0, AGENTS.md:1-1", notice: "instructions_truncated AGENTS.md",
		},
		{
			name: "(*) exhausted before the last", max: 3, dir: "sub/deep", project: map[string]string{"AGENTS.md": "abc", "sub/AGENTS.md": "s", "sub/deep/AGENTS.md": "d"},
			text: "abc", loaded: "AGENTS.md:3-0, AGENTS.md:0-1, AGENTS.md:0-1", notice: "instructions_truncated AGENTS.md, instructions_truncated AGENTS.md",
		},
		{
			name: "untrusted", max: 100, skip: true, home: map[string]string{"AGENTS.md": "mine"}, project: map[string]string{"AGENTS.md": "theirs"},
			text: "mine", loaded: "AGENTS.md:4-0", notice: "instructions_untrusted AGENTS.md",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			home, project := plain(t, c.home), plain(t, c.project)
			dir := filepath.Join(project, c.dir)
			check(t, os.MkdirAll(dir, 0o755))
			d := Open(Options{Facts: Facts{Dir: dir}})
			in, err := d.Instructions(t.Context(), InstructionsOptions{
				Dir: dir, Root: project, Home: home, Fallbacks: c.fallbacks, MaxBytes: c.max, SkipProject: c.skip,
			})
			check(t, err)
			want, about := "", " for "+dir
			if c.project == nil || c.max == 0 || c.skip { // only the user's own
				about = ""
			}
			if c.text != "" {
				want = "# AGENTS.md instructions" + about + "\n\n<INSTRUCTIONS>\n" + c.text + "\n</INSTRUCTIONS>"
			}
			if in.Text != want {
				t.Errorf("text:\n got %q\nwant %q", in.Text, want)
			}
			if got := loaded(in.Loaded); got != c.loaded {
				t.Errorf("loaded: %s, want %s", got, c.loaded)
			}
			if got := noticeClasses(in.Notices); got != c.notice {
				t.Errorf("notices: %s, want %s", got, c.notice)
			}
			check(t, d.Close())
		})
	}
}

func TestInstructionsAreNotLedOutside(t *testing.T) {
	outside := plain(t, map[string]string{"secret": "tok-123"})
	project := plain(t, map[string]string{"real.md": "inside", "a/b/c/d/x": ""})
	for link, target := range map[string]string{
		"AGENTS.md": outside + "/secret", "a/AGENTS.md": "../real.md", "a/b/AGENTS.md": "missing", "a/b/AGENTS.override.md/x": "",
	} {
		if target == "" {
			check(t, os.MkdirAll(filepath.Join(project, link), 0o755))
			continue
		}
		check(t, os.Symlink(target, filepath.Join(project, link)))
	}
	check(t, syscall.Mkfifo(filepath.Join(project, "a/b/c/AGENTS.md"), 0o644))
	check(t, os.WriteFile(filepath.Join(project, "a/b/c/d/AGENTS.md"), []byte("last"), 0o644))
	d := Open(Options{Facts: Facts{Dir: project}})
	in, err := d.Instructions(t.Context(), InstructionsOptions{Dir: project + "/a/b/c/d", Root: project, MaxBytes: 1000})
	check(t, err)
	if !strings.Contains(in.Text, "\ninside\n\nlast\n") || strings.Contains(in.Text, "tok-123") {
		t.Errorf("text: %q", in.Text)
	}
	if got := noticeClasses(in.Notices); got != "instructions_outside AGENTS.md, instructions_unreadable AGENTS.md, instructions_unreadable AGENTS.md" {
		t.Errorf("notices: %s", got)
	}
	if !strings.Contains(in.Notices[0].Message, outside+"/secret") {
		t.Errorf("the target is not named: %s", in.Notices[0].Message)
	}
	check(t, d.Close())
}

func TestInstructionsFromRef(t *testing.T) {
	dir := repo(t, map[string]string{
		"AGENTS.md": "root\n", "p/AGENTS.override.md": "over\n", "p/AGENTS.md": "not this\n", "p/q/OTHER.md": "other\n", "p/q/r/x": "", "p/q/real.md": "linked\n",
	})
	check(t, os.Symlink("../real.md", filepath.Join(dir, "p/q/r/AGENTS.md")))
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "trusted")
	git(t, dir, "tag", "trusted")
	put(t, dir, map[string]string{"AGENTS.md": "evil\n", "p/AGENTS.override.md": "evil\n", "p/q/AGENTS.md": "evil\n"})
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "fork")
	d := opened(t, dir, Bounds{})
	o := InstructionsOptions{Dir: dir + "/p/q/r", Root: dir, Fallbacks: []string{"OTHER.md"}, MaxBytes: 19, Ref: "trusted"}
	in, err := d.Instructions(t.Context(), o)
	check(t, err)
	if want := "\nroot\n\n\nover\n\n\nother\n\n\nlin\n<"; !strings.Contains(in.Text, want) || strings.Contains(in.Text, "evil") {
		t.Errorf("text %q, want %q in it", in.Text, want)
	}
	if got := loaded(in.Loaded); got != "AGENTS.md:5-0trusted, AGENTS.override.md:5-0trusted, OTHER.md:6-0trusted, AGENTS.md:3-4trusted" {
		t.Errorf("loaded: %s", got)
	}
	o.Root, o.MaxBytes = dir+"/p/q", 1000
	if in, err = d.Instructions(t.Context(), o); err != nil || !strings.Contains(in.Text, "\nother\n\n\nlinked\n\n<") {
		t.Errorf("from a root inside the repository: %v, %q", err, in.Text)
	}
	var bad *RefError
	for _, ref := range []string{"nothing", "--help", "trusted:p", "a\nb", "HEAD~99"} {
		o.Ref = ref
		if _, err := d.Instructions(t.Context(), o); !errors.As(err, &bad) || bad.Hint() == "" {
			t.Errorf("%q: %v", ref, err)
		}
	}
	none := Open(Options{Facts: Facts{Dir: dir}})
	if _, err := none.Instructions(t.Context(), o); !errors.As(err, &bad) {
		t.Errorf("outside a repository: %v", err)
	}
	check(t, none.Close())
}

func TestLinksOutOfARefAreSaid(t *testing.T) {
	dir := repo(t, nil)
	check(t, os.Symlink("/etc/hostname", filepath.Join(dir, "AGENTS.md")))
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "x")
	in, err := opened(t, dir, Bounds{}).Instructions(t.Context(), InstructionsOptions{Dir: dir, Root: dir, MaxBytes: 100, Ref: "HEAD"})
	check(t, err)
	if in.Text != "" || !strings.HasPrefix(noticeClasses(in.Notices), "instructions_outside") {
		t.Errorf("%q, %s", in.Text, noticeClasses(in.Notices))
	}
}

// These are the texts that the reference sends, folders apart.
func TestEnvironmentText(t *testing.T) {
	e := Environment{
		Cwd: "/stall", Shell: "bash", Date: time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC), Timezone: "Etc/UTC",
		Writable: []string{"/extra"}, SlashTmp: true, TmpDir: true, Protect: []string{".git", ".agents"},
	}
	head := "<environment_context>\n  <cwd>/stall</cwd>\n  <shell>bash</shell>\n  <current_date>2026-01-31</current_date>\n  <timezone>Etc/UTC</timezone>\n  <filesystem><workspace_roots><root>/stall</root>"
	const tail = "</filesystem>\n</environment_context>"
	const managed = `</workspace_roots><permission_profile type="managed"><file_system type="restricted"><entry access="read"><special>:root</special></entry>`
	for mode, want := range map[sandbox.Mode]string{
		sandbox.ReadOnly: managed + "</file_system></permission_profile>",
		sandbox.WorkspaceWrite: "<root>/extra</root>" + managed + `<entry access="write"><path>/stall</path></entry><entry access="write"><path>/extra</path></entry>` +
			`<entry access="write"><special>:slash_tmp</special></entry><entry access="write"><special>:tmpdir</special></entry>` +
			`<entry access="read"><path>/stall/.git</path></entry><entry access="read"><path>/extra/.git</path></entry>` +
			`<entry access="read"><path>/stall/.agents</path></entry><entry access="read"><path>/extra/.agents</path></entry></file_system></permission_profile>`,
		sandbox.FullAccess: `</workspace_roots><permission_profile type="disabled"><file_system type="unrestricted" /></permission_profile>`,
	} {
		e.Mode = mode
		if got := e.Text(); got != head+want+tail {
			t.Errorf("%s:\n got %s\nwant %s", mode, got, head+want+tail)
		}
	}
	e.Cwd, e.Shell, e.Timezone = "/a<b>&c", "", ""
	if got := e.Text(); !strings.Contains(got, "<cwd>/a&lt;b&gt;&amp;c</cwd>\n  <current_date>") || strings.Contains(got, "shell>") {
		t.Errorf("escaped: %s", got)
	}
}

func TestReplaceInvalid(t *testing.T) {
	for in, want := range map[string]string{
		"plain é": "plain é", "\xff\xfe": "\uFFFD\uFFFD", "é\xc3": "é\uFFFD", "\xe2\x82": "\uFFFD", "\xe2\x82x": "\uFFFDx",
		"\xf0\x9f\x98": "\uFFFD", "\xe0\x80": "\uFFFD\uFFFD", "\xed\xa0\x80": "\uFFFD\uFFFD\uFFFD", "\uFFFD\xc3": "\uFFFD\uFFFD",
	} {
		if got := replaceInvalid([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzParseBatch(f *testing.F) {
	f.Add([]byte("aaa blob 3\nabc\nHEAD:x missing\n"), 2)
	f.Add([]byte("symlink 4\n../x\ndangling 1\nx\n"), 2)
	f.Fuzz(func(t *testing.T, out []byte, n int) {
		if n < 0 || n > 100 {
			return
		}
		answers, err := parseBatch(out, n)
		if err == nil && len(answers) != n {
			t.Errorf("%d answers of %d", len(answers), n)
		}
	})
}
