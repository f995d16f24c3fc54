package rules

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAgainstBash lets a real bash judge the reader: random scripts that wrap a
// harmless program in every way the generator knows. Whatever bash runs must
// have been found. Scripts that are refused are only tried now and then.
func TestAgainstBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	bin := t.TempDir()
	mark := filepath.Join(bin, "mark")
	if err := os.WriteFile(filepath.Join(bin, "uname"), []byte("#!"+bash+"\necho x >> "+mark+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	set := parse(t, `prefix_rule(pattern=["uname"], decision="forbidden")`)
	seed := time.Now().UnixNano()
	g := &generator{rand.New(rand.NewSource(seed)), bin}
	t.Logf("seed %d", seed)
	ran := 0
	for range 4000 {
		script := g.command(1 + g.Intn(3))
		d := set.Shell(script, bash, true)
		if d.Level == Forbidden && g.Intn(60) != 0 {
			continue
		}
		if !runs(t, bash, script, bin, mark) {
			continue
		}
		ran++
		// Once more, alone: something that an earlier script left behind may have
		// made the mark.
		if d.Level != Forbidden && runsAgain(t, bash, script, bin, mark) {
			t.Errorf("bash runs uname in %q, which is %v: read as %q", script, d.Level, d.Commands)
		}
	}
	if ran == 0 {
		t.Error("no generated script ran anything")
	}
}

// runs tells whether bash runs the marked program.
func runs(t *testing.T, bash, script, bin, mark string) bool {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	// A process group of its own, so that exec.CommandContext ends all of it.
	cmd := exec.CommandContext(ctx, bash, "-c", script+"\nwait")
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = []string{"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
	_ = cmd.Run() // the scripts fail in many ways; only the mark counts
	if _, err := os.Stat(mark); err != nil {
		return false
	}
	return os.Remove(mark) == nil
}

// runsAgain is runs, once nothing is left of the scripts before.
func runsAgain(t *testing.T, bash, script, bin, mark string) bool {
	t.Helper()
	time.Sleep(time.Second)
	if err := os.Remove(mark); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return runs(t, bash, script, bin, mark)
}

// generator makes scripts.
type generator struct {
	*rand.Rand
	bin string
}

func (g *generator) pick(list ...string) string { return list[g.Intn(len(list))] }

// word writes the program's name in one of many ways.
func (g *generator) word() string {
	const w = "uname"
	i := 1 + g.Intn(len(w)-1)
	return g.pick(
		w,
		w[:i]+`\`+w[i:],
		w[:i]+`""`+w[i:],
		"'"+w+"'",
		`"`+w+`"`,
		fmt.Sprintf(`$'\x%02x%s'`, w[0], w[1:]),
		filepath.Join(g.bin, w),
		w[:i]+"'"+w[i:]+"'",
		w[:i]+"\\\n"+w[i:],
	)
}

func single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func double(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(s) + `"`
}

// templates hold %s for a command, %q for one in single and %d for one in double
// quotes, %w for the program's name, %a for a command without single quotes.
var templates = strings.Split(`(%s)|{ %s
}|if true; then %s
fi|for i in 1; do %s
done|while %s
do break; done|f(){ %s
}; f|! %w|time %w -a|echo $(%s
)|echo "$(%s
)"|cat <(%s
)|eval %q|eval %d|bash -c %q|sh -c %q|bash -c %d|bash -ec %q|bash <<'E'
%s
E
|bash <<< %q|printf '%%s\n' %q ¦ sh|printf '%%s\n' %q ¦ bash /dev/stdin|echo %q ¦ bash|env %w|env -i PATH="$PATH" %w|env X=1 %w|env -u Y %w|nice -n 1 %w|nohup %w|timeout 5 %w|timeout -k 1 5 %w|stdbuf -oL %w|setsid -w %w|command -p %w|exec %w|builtin command %w|xargs -n1 %w </dev/null|flock x %w|env -- %w
|env bash -c %q|timeout 5 sh -c %q|X=uname; $X|X=unam; ${X}e|X=%q; eval "$X"|find . -maxdepth 0 -exec %w \;|find . -maxdepth 0 -exec sh -c %q \;|trap %q EXIT|case x in x) %s
;; esac|%s &
wait|[[ -n $(%s
) ]]|x=$(%s
)|: ${Z:-$(%s
)}|cat <<E
$(%s
)
E
|echo a ¦ { %s
}|false ¦¦ %s|true && %s|set -- uname; "$@"|bash -c '"$@"' x uname -a|bash -c '$0 -a' uname|echo uname ¦ xargs -I{} {} -a|echo uname ¦ while read l; do $l; done|shopt -s expand_aliases
alias zz=uname
zz|echo %q > zz.sh; bash zz.sh|echo %q > zz.sh; . ./zz.sh|echo %q ¦ tee zz.sh >/dev/null; sh zz.sh|{uname,-a}|$(echo uname) -a|a='x[$(%a
)]'; echo $((a))|env -S 'uname -a'|git -c alias.z='!uname' z|cat <<E ¦ sh
%s
E
|exec 5<<< %q; bash <&5|source <(echo %q)|coproc { %s
}; wait|declare y=$(%s
)|echo $(( $(%s
) + 0 ))|cp "$(command -v uname)" ./zz; ./zz|ln -s "$(command -v uname)" zz; ./zz|g(){ "$@"; }; g uname|g(){ eval "$1"; }; g %q|x='$(%a
)'; echo "${x@P}"|A=(uname -a); "${A[@]}"|. /dev/stdin <<< %q|source /dev/stdin <<E
%s
E
|echo a ¦ xargs sh -c %q|bash -c '$1' x uname|bash -c 'eval "$1"' x %q|p=un; q=ame; $p$q|p=uname; bash -c "$p"|p=uname; export p; bash -c '$p'|while read -r l; do eval "$l"; done <<< %q|mapfile -t m <<< uname; "${m[0]}"|test -v 'x[$(%a
)]'|printf -v 'x[$(%a
)]' y|%s; %s`, "|")

func (g *generator) command(depth int) string {
	if depth <= 0 {
		return g.word() + g.pick("", " -a", " >/dev/null", " 2>&1", " x")
	}
	text := strings.ReplaceAll(strings.ReplaceAll(templates[g.Intn(len(templates))], "¦", "|"), "%%", "\x00")
	for {
		at := strings.IndexByte(text, '%')
		if at < 0 {
			return strings.ReplaceAll(text, "\x00", "%")
		}
		inner := strings.ReplaceAll(g.command(depth-1), "%", "\x00")
		switch text[at+1] {
		case 'q':
			inner = single(inner)
		case 'd':
			inner = double(inner)
		case 'a':
			inner = strings.ReplaceAll(inner, "'", "")
		case 'w':
			inner = g.word()
		}
		text = text[:at] + inner + text[at+2:]
	}
}
