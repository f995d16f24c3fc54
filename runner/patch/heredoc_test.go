package patch

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFromShell(t *testing.T) {
	t.Parallel()
	const body = "*** Begin Patch\n*** Add File: a\n+$x `y`\n*** End Patch\n"
	for script, dir := range map[string]string{
		"apply_patch <<'EOF'\n" + body + "EOF\n":                                              "",
		"apply_patch <<EOF\n" + body + "EOF":                                                  "",
		"apply_patch<<\"EOF\"\n" + body + "EOF\n\n":                                           "",
		"\n  applypatch << 'PATCH' \n" + body + "PATCH\n":                                     "",
		"apply_patch <<\\END\n" + body + "END\n":                                              "",
		"cd sub/dir && apply_patch <<'EOF'\n" + body + "EOF\n":                                "sub/dir",
		"cd 'my dir' && apply_patch <<'EOF'\n" + body + "EOF\n":                               "my dir",
		"cd \"my dir\"&&apply_patch <<'EOF'\n" + body + "EOF\n":                               "my dir",
		"cd /abs/größe &&\n apply_patch <<'EOF'\n" + body + "EOF\n":                           "/abs/größe",
		"apply_patch <<-EOF\n" + strings.ReplaceAll(body, "*** Add", "\t*** Add") + "\tEOF\n": "",
		"apply_patch - <<'EOF'\n" + body + "EOF\n":                                            "",
		"apply_patch <<'END OF'\n" + body + "END OF\n":                                        "",
		"A=1 B_2=/x/y apply_patch <<'EOF'\n" + body + "EOF\n":                                 "",
		"cd x && A= apply_patch <<'EOF'\n" + body + "EOF\n":                                   "x",
		"cd\tx\t&&\tapply_patch\t<<'EOF'\n" + body + "EOF\n":                                  "x",
	} {
		d, p, ok := FromShell(script)
		if !ok || d != dir || p != body {
			t.Errorf("%q gave %q, %q, %v", script, d, p, ok)
		}
	}
	for _, script := range []string{
		"", "ls", "apply_patch", "apply_patch x", "apply_patch 'x'", "apply_patch < f",
		"apply_patch <<'EOF'", "apply_patch <<'EOF'\n" + body, "apply_patch <<'EOF\n" + body + "EOF\n",
		"apply_patch <<-EOF\n" + body + "-EOF\n", "apply_patch <<<EOF\n" + body + "EOF\n",
		"apply_patch <<'EOF' && ls\n" + body + "EOF\n", "apply_patch <<'EOF' > f\n" + body + "EOF\n", "apply_patch <<'EOF' | tee f\n" + body + "EOF\n",
		"apply_patch <<'EOF'\n" + body + "EOF\nls\n", "apply_patch <<'EOF'\n" + body + "EOF \n", "apply_patch <<'E'OF\n" + body + "EOF\n",
		"apply_patch -x <<'EOF'\n" + body + "EOF\n", "apply_patch2 <<'EOF'\n" + body + "EOF\n", "./apply_patch <<'EOF'\n" + body + "EOF\n",
		"echo x; apply_patch <<'EOF'\n" + body + "EOF\n", "A=$x apply_patch <<'EOF'\n" + body + "EOF\n", "A=1; apply_patch <<'EOF'\n" + body + "EOF\n", "(apply_patch <<'EOF'\n" + body + "EOF\n)",
		"cd x; apply_patch <<'EOF'\n" + body + "EOF\n", "cd x || apply_patch <<'EOF'\n" + body + "EOF\n", "cd && apply_patch <<'EOF'\n" + body + "EOF\n",
		"cd x y && apply_patch <<'EOF'\n" + body + "EOF\n", "cd -P && apply_patch <<'EOF'\n" + body + "EOF\n", "cd - && apply_patch <<'EOF'\n" + body + "EOF\n",
		"cd $HOME && apply_patch <<'EOF'\n" + body + "EOF\n", "cd ~ && apply_patch <<'EOF'\n" + body + "EOF\n", "cd `pwd` && apply_patch <<'EOF'\n" + body + "EOF\n",
		"cd \"$x\" && apply_patch <<'EOF'\n" + body + "EOF\n", "cd a* && apply_patch <<'EOF'\n" + body + "EOF\n", "cd 'a'b && apply_patch <<'EOF'\n" + body + "EOF\n",
		"cd a\\ b && apply_patch <<'EOF'\n" + body + "EOF\n", "cd x & apply_patch <<'EOF'\n" + body + "EOF\n", "cdx && apply_patch <<'EOF'\n" + body + "EOF\n",
		"apply_patch <<\n" + body + "\n",
	} {
		if d, p, ok := FromShell(script); ok {
			t.Errorf("%q was taken for a patch: %q, %q", script, d, p)
		}
	}
}

// TestSummaryAsWritten: the model is told its own names for the files.
func TestSummaryAsWritten(t *testing.T) {
	t.Parallel()
	ws, _ := yard(t)
	got := apply(t, Request{Patch: "*** Begin Patch\n*** Add File: ./x/../new\n+1\n*** Add File: " + ws + "/abs\n+1\n*** Update File: a\n*** Move to: ../" + filepath.Base(ws) + "/b\n@@\n-one\n+ONE\n*** End Patch\n", Scope: Scope{Workdir: ws, Roots: []string{ws}}})
	last := got[len(got)-1]
	if d := cmp.Diff([]string{"A ./x/../new", "A " + ws + "/abs", "M ../" + filepath.Base(ws) + "/b"}, last.Summary); d != "" {
		t.Errorf("%s %+v", d, last)
	}
}
