package tool

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/policy/rules"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

const tidy = "*** Begin Patch\n*** Add File: signs/open.txt\n+Open today\n*** Update File: prices.txt\n@@\n pear 2\n-fig 3\n+fig 4\n*** Delete File: old.txt\n" +
	"*** Update File: sign.txt\n*** Move to: signs/front.txt\n@@\n-FRUIT\n+FRESH FRUIT\n*** End Patch\n"

const tidied = `Success\. Updated the following files:\nA signs/open\.txt\nM prices\.txt\nM signs/front\.txt\nD old\.txt\n$`

func stand(r *rig) {
	r.write("prices.txt", "pear 2\nfig 3\n")
	r.write("old.txt", "x\n")
	r.write("sign.txt", "FRUIT\n")
}

func TestPatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	stand(r)
	said, res := r.call("apply_patch", tidy)
	wants(t, said, `^Exit code: 0\nWall time: \d+\.\d seconds\nOutput:\n`+tidied)
	if res.Status != event.Completed || res.Denied != nil {
		t.Errorf("%+v", res)
	}
	if got := []string{r.read("prices.txt"), r.read("old.txt"), r.read("sign.txt"), r.read("signs/front.txt"), r.read("signs/open.txt")}; !cmp.Equal(got,
		[]string{"pear 2\nfig 4\n", "<none>", "<none>", "FRESH FRUIT\n", "Open today\n"}) {
		t.Errorf("%q", got)
	}
	changes := []event.PathChange{{Path: r.ws + "/old.txt", Kind: "delete"}, {Path: r.ws + "/prices.txt", Kind: "update"},
		{Path: r.ws + "/sign.txt", Kind: "update"}, {Path: r.ws + "/signs/open.txt", Kind: "add"}}
	if d := cmp.Diff([]event.FileChange{{Changes: changes, Status: event.Completed}}, r.patches()); d != "" {
		t.Error(d)
	}
	started := events[event.ItemStarted](r)
	if len(started) != 1 || !cmp.Equal(started[0].Item.Details, event.ItemDetails(event.FileChange{Changes: changes, Status: event.InProgress})) {
		t.Errorf("%+v", started)
	}
	if d := events[event.PolicyDecision](r); len(d) != 1 || d[0].Action != "patch" || d[0].Outcome != policy.Sandboxed {
		t.Errorf("%+v", d)
	}
}

func TestPatchFromShell(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	stand(r)
	const prefix = `^Wall time: 0\.0000 seconds\nOutput:\nExit code: 0\nWall time: \d+\.\d seconds\nOutput:\n`
	said, _ := r.exec("apply_patch <<'EOF'\n" + tidy + "EOF\n")
	wants(t, said, prefix+tidied)
	r.write("sub/a", "one\n")
	said, _ = r.exec("cd sub && apply_patch <<EOF\n*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** End Patch\nEOF")
	wants(t, said, prefix+`Success\. Updated the following files:\nM a\n$`)
	said, _ = r.exec("applypatch << \"E\"\n*** Begin Patch\n*** Update File: a\n@@\n-two\n+three\n*** End Patch\nE", args{"workdir": "sub"})
	wants(t, said, prefix+`Success\. Updated the following files:\nM a\n$`)
	if got := r.read("sub/a"); got != "three\n" {
		t.Error(got)
	}
	said, res := r.exec("apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: sub/a\n@@\n-nine\n+ten\n*** End Patch\nEOF")
	if said != "apply_patch verification failed: Failed to find expected lines in "+r.ws+"/sub/a:\nnine" || res.Status != event.Failed {
		t.Errorf("%s %+v", said, res)
	}
	if p := r.patches(); len(p) != 4 || p[3].Status != event.Failed || len(r.commands()) != 0 {
		t.Errorf("%+v %+v", p, r.commands())
	}
	// Anything else is a command, and no such program is there.
	said, _ = r.exec("true; apply_patch <<'EOF'\n" + tidy + "EOF\n")
	wants(t, said, answerOf("127", ".*apply_patch: command not found\n"))
	said, res = r.exec("*** Begin Patch\n*** Add File: n\n+x\n*** End Patch")
	if !strings.Contains(said, "apply_patch tool") || res.Status != event.Declined || r.read("n") != "<none>" {
		t.Errorf("%s %+v", said, res)
	}
}

// TestPatchThatDoesNotFit: the model is told why, the item is failed and never
// was in progress, and nothing changed.
func TestPatchThatDoesNotFit(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	stand(r)
	if err := syscall.Mkfifo(filepath.Join(r.ws, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	r.write("latin1.txt", "gr\xfc\xdfe\n")
	update := func(path string) string {
		return "*** Begin Patch\n*** Update File: prices.txt\n@@\n-fig 3\n+fig 4\n*** Update File: " + path + "\n@@\n-fig 30\n-fig 31\n+fig 5\n*** End Patch\n"
	}
	for text, want := range map[string]string{
		update("sign.txt"):   "Failed to find expected lines in " + r.ws + "/sign.txt:\nfig 30\nfig 31",
		update("none.txt"):   "Failed to read file to update " + r.ws + "/none.txt: No such file or directory (os error 2)",
		update("pipe"):       "Failed to read file to update " + r.ws + "/pipe: it is a named pipe, not a regular file",
		update("latin1.txt"): "Failed to read file to update " + r.ws + "/latin1.txt: the file is not valid UTF-8 text",
		"nonsense":           "invalid patch: The first line of the patch must be '*** Begin Patch'",
	} {
		said, res := r.call("apply_patch", text)
		if said != "apply_patch verification failed: "+want || res.Status != event.Failed || res.Denied != nil || res.Message != want {
			t.Errorf("%s\nwant %s\n%+v", said, want, res)
		}
	}
	if got := r.read("prices.txt"); got != "pear 2\nfig 3\n" {
		t.Errorf("half of a patch was applied: %q", got)
	}
	for _, p := range r.patches() {
		if p.Status != event.Failed || p.Message == "" || p.Changes == nil {
			t.Errorf("%+v", p)
		}
	}
	if n := len(events[event.ItemStarted](r)); n != 0 {
		t.Errorf("%d items were started", n)
	}
}

func TestPatchOutside(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite, func(_ *Deps, s *sandbox.Spec) {
		git := filepath.Join(s.Workspace, ".git")
		if err := os.Mkdir(git, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(git, "config"), []byte("keep\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	stand(r)
	if err := os.WriteFile(filepath.Join(r.out, "victim"), []byte("keep\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../out", filepath.Join(r.ws, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../out/victim", r.out + "/victim", "link/victim", ".git/config", "sub/../.git/config", ".codex/config.toml", "/etc/hosts"} {
		for _, text := range []string{
			"*** Begin Patch\n*** Add File: " + path + "\n+planted\n*** End Patch",
			"*** Begin Patch\n*** Update File: " + path + "\n@@\n-keep\n+planted\n*** End Patch",
			"*** Begin Patch\n*** Update File: sign.txt\n*** Move to: " + path + "\n@@\n-FRUIT\n+planted\n*** End Patch",
		} {
			said, res := r.call("apply_patch", text)
			if said != "patch rejected: writing outside of the project; rejected by user approval settings" || res.Status != event.Declined || res.Denied == nil || res.Denied.Source != "sandbox" {
				t.Errorf("%s\n%s\n%+v", text, said, res)
			}
		}
	}
	for _, name := range []string{r.out + "/victim", ".git/config"} {
		if got := r.read(name); got != "keep\n" {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if r.read(".codex/config.toml") != "<none>" || r.read("sign.txt") != "FRUIT\n" {
		t.Error("something was written")
	}
	for _, p := range r.patches() {
		if p.Status != event.Declined || p.Denial == nil || len(p.Changes) != 1 || !filepath.IsAbs(p.Changes[0].Path) {
			t.Errorf("%+v", p)
		}
	}
	if d := events[event.PolicyDecision](r); len(d) != 21 || d[0].Outcome != policy.Denied {
		t.Errorf("%d decisions, %+v", len(d), d[0])
	}
}

func TestPatchReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.ReadOnly)
	stand(r)
	said, res := r.call("apply_patch", tidy)
	if said != "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings" || res.Status != event.Declined {
		t.Errorf("%s %+v", said, res)
	}
	if r.read("prices.txt") != "pear 2\nfig 3\n" || len(r.patches()[0].Changes) != 4 {
		t.Errorf("%+v", r.patches())
	}
}

func TestPatchFullAccess(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.FullAccess)
	said, _ := r.call("apply_patch", "*** Begin Patch\n*** Add File: "+r.out+"/new\n+x\n*** Add File: .git/x\n+x\n*** End Patch")
	wants(t, said, `^Exit code: 0\n.*\nOutput:\nSuccess\. Updated the following files:\nA `+r.out+`/new\nA \.git/x\n$`)
}

func TestPatchWriteError(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	long := strings.Repeat("n", 300)
	said, res := r.call("apply_patch", "*** Begin Patch\n*** Add File: new/"+long+"\n+x\n*** End Patch")
	wants(t, said, `^Exit code: 1\nWall time: \d+\.\d seconds\nOutput:\nFailed to write file `+r.ws+`/new/n+\n$`)
	if res.Status != event.Failed || !strings.Contains(res.Message, "File name too long") {
		t.Errorf("%+v", res)
	}
	said, _ = r.call("apply_patch", "*** Begin Patch\n*** Add File: first\n+1\n*** Add File: new/"+long+"\n+x\n*** End Patch")
	wants(t, said, `^Exit code: 1\n.*\nOutput:\nFailed to write file `+r.ws+`/new/n+\nUpdated before the failure:\nA first\n$`)
	p := r.patches()
	if len(p) != 2 || p[1].Status != event.Failed || !strings.HasSuffix(p[1].Message, "; Updated before the failure: A first") || r.read("first") != "1\n" {
		t.Errorf("%+v", p)
	}
}

func TestPatchForms(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, res := r.call("apply_patch", json.RawMessage(`{"input":"*** Begin Patch\n*** End Patch"}`))
	if !strings.HasPrefix(said, "aborted") || res.Status != event.Failed {
		t.Errorf("%s %+v", said, res)
	}
	r.verdict = func(string, bool) policy.Verdict { return match(rules.Forbidden, "", "apply_patch") }
	said, res = r.call("apply_patch", tidy)
	if said != "patch rejected: a rule says no" || res.Status != event.Declined || res.Denied.Rule != "apply_patch" {
		t.Errorf("%s %+v", said, res)
	}
	if its := r.items(); len(its) != 2 {
		t.Errorf("%+v", its)
	}
}
