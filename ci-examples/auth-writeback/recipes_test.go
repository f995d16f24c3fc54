// Package writeback has no code: its test runs the recipes of this folder
// against stand-ins of the tools that they call.
package writeback

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// login is an auth.json of a moment; the day is its generation.
func login(day int) string {
	return fmt.Sprintf(`{
  "tokens": {"access_token": "canary-access-%d", "refresh_token": "canary-refresh-%d", "account_id": "acct"},
  "last_refresh": "2026-03-%02dT10:20:30.123456789Z"
}
`, day, day, day)
}

// The stand-ins write each argument to $LOG, and keep what they store in
// $STORE. $RACE is a login that somebody else stores between read and write.
var tools = map[string]string{
	"gh": `
case "$1 $2" in
"variable list") cat "$STORE.generation" 2>/dev/null || true ;;
"secret set") cat > "$STORE" ;;
"variable set") while [ $# -gt 1 ]; do [ "$1" = --body ] && printf '%s' "$2" > "$STORE.generation"; shift; done ;;
*) exit 9 ;;
esac`,
	"curl": `
config=$(cat); [ "$config" = 'header = "PRIVATE-TOKEN: canary-gitlab"' ] || exit 9
method=GET out=/dev/null
while [ $# -gt 0 ]; do
	case $1 in
	--request) method=$2; shift ;;
	--output) out=$2; shift ;;
	--data-urlencode) file=${2#value@}; shift ;;
	esac
	shift
done
case $method in
GET)
	[ -n "$BROKEN" ] && { printf 500; exit; }
	[ -e "$STORE" ] || { printf 404; exit; }
	{ printf '{"key":"X","value":"'; sed 's/"/\\"/g; s/$/\\n/' "$STORE" | tr -d '\n'; printf '"}'; } > "$out"
	printf 200 ;;
PUT) [ -e "$STORE" ] && cp "$file" "$STORE" ;;
POST) [ ! -e "$STORE" ] && cp "$file" "$STORE" ;;
esac`,
	"vault": `
[ -n "$BROKEN" ] && [ "$3" = get ] && exit 1
last= cas=
for a in "$@"; do last=$a; case $a in -cas=*) cas=${a#-cas=} ;; esac; done
version=0; [ -e "$STORE.version" ] && version=$(cat "$STORE.version")
case "$2 $3" in
"metadata get") [ "$version" -gt 0 ] || exit 2; printf '{\n  "data": {\n    "current_version": %s\n  }\n}\n' "$version" ;;
"get "*)
	cat "$STORE"
	if [ -n "$RACE" ]; then cp "$RACE" "$STORE"; echo $((version + 1)) > "$STORE.version"; fi ;;
"put "*) [ "$last" = auth_json=- ] || exit 9
	[ "$cas" = "$version" ] || { echo 'check-and-set parameter did not match the current version' >&2; exit 2; }
	cat > "$STORE"; echo $((version + 1)) > "$STORE.version" ;;
*) exit 9 ;;
esac`,
	"kubectl": `
[ "$1" = --namespace ] && shift 2
version=; [ -e "$STORE.version" ] && version=$(cat "$STORE.version")
case "$1 $2" in
"get secret")
	[ -n "$BROKEN" ] && exit 1
	case "$*" in
	*resourceVersion*) printf '%s' "$version" ;;
	*) base64 < "$STORE" | tr -d '\n'
		if [ -n "$RACE" ]; then cp "$RACE" "$STORE"; echo $((version + 1)) > "$STORE.version"; fi ;;
	esac ;;
"create secret") [ -z "$version" ] || exit 9; cat > "$STORE"; echo 1 > "$STORE.version" ;;
"patch secret")
	patch=$(cat)
	got=$(printf '%s' "$patch" | sed 's/.*"resourceVersion":"\([0-9]*\)".*/\1/')
	[ "$got" = "$version" ] || { echo 'the object has been modified' >&2; exit 1; }
	printf '%s' "$patch" | sed 's/.*"auth.json":"\([^"]*\)".*/\1/' | base64 -d > "$STORE"; echo $((version + 1)) > "$STORE.version" ;;
*) exit 9 ;;
esac`,
}

// bench runs one recipe.
type bench struct {
	t          *testing.T
	dir, store string
	env        []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	b.store = filepath.Join(b.dir, "store")
	bin := filepath.Join(b.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, body := range tools {
		text := "#!/bin/sh\nset -eu\nfor a in \"$@\"; do printf '%s\\n' \"$a\" >> \"$LOG\"; done\n" + body + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "STORE=" + b.store, "LOG=" + filepath.Join(b.dir, "log"), "TMPDIR=" + b.dir,
		"RACE=", "BROKEN=", "GITHUB_REPOSITORY=example/example", "CI_API_V4_URL=https://gitlab.example.com/api/v4", "CI_PROJECT_ID=1",
		"AUTH_GITLAB_TOKEN=canary-gitlab", "AUTH_NAMESPACE=jobs",
	}
	return b
}

func (b *bench) run(recipe, stdin string, env ...string) (ok bool, said string) {
	b.t.Helper()
	cmd := exec.Command("sh", recipe)
	cmd.Env = append(append([]string(nil), b.env...), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	log, readErr := os.ReadFile(filepath.Join(b.dir, "log"))
	if readErr != nil && !os.IsNotExist(readErr) {
		b.t.Fatal(readErr)
	}
	for _, canary := range []string{"canary", base64.StdEncoding.EncodeToString([]byte(`{"tokens": {"access`))[:20]} {
		if strings.Contains(out.String(), canary) {
			b.t.Errorf("prints the login: %s", out.String())
		}
		if bytes.Contains(log, []byte(canary)) {
			b.t.Errorf("the login is in an argument: %s", log)
		}
	}
	left, globErr := filepath.Glob(filepath.Join(b.dir, "tmp.*"))
	if globErr != nil || len(left) > 0 {
		b.t.Errorf("left behind: %q %v", left, globErr)
	}
	return err == nil, out.String()
}

func (b *bench) stored() string {
	text, err := os.ReadFile(b.store)
	if err != nil {
		return ""
	}
	return string(text)
}

func TestRecipes(t *testing.T) {
	recipes, err := filepath.Glob("*.sh")
	if err != nil || len(recipes) != 4 {
		t.Fatalf("%q %v", recipes, err)
	}
	for _, recipe := range recipes {
		t.Run(recipe, func(t *testing.T) {
			b := newBench(t)
			for _, bad := range []string{"", "not a login", `{"OPENAI_API_KEY":"canary"}`} {
				if ok, _ := b.run(recipe, bad); ok || b.stored() != "" {
					t.Errorf("%q was stored", bad)
				}
			}
			for _, step := range []struct {
				day  int
				ok   bool
				want int
			}{{3, true, 3}, {4, true, 4}, {4, true, 4}, {2, false, 4}, {5, true, 5}} {
				ok, said := b.run(recipe, login(step.day))
				if ok != step.ok || b.stored() != login(step.want) {
					t.Errorf("day %d: ok %v, stored %q, said %s", step.day, ok, b.stored(), said)
				}
			}
			compact := strings.ReplaceAll(strings.ReplaceAll(login(6), "\n", ""), ": ", ":")
			if ok, said := b.run(recipe, compact); !ok || strings.TrimSpace(b.stored()) != compact {
				t.Errorf("compact: %v %s %q", ok, said, b.stored())
			}
			if recipe == "github.sh" {
				return // what follows needs a store that can be read
			}
			if ok, _ := b.run(recipe, login(7), "BROKEN=1"); ok || strings.TrimSpace(b.stored()) != compact {
				t.Error("stored although the store could not be read")
			}
			if recipe == "gitlab.sh" {
				return // no conditional write there
			}
			race := filepath.Join(b.dir, "race")
			if err := os.WriteFile(race, []byte(login(9)), 0o600); err != nil {
				t.Fatal(err)
			}
			if ok, _ := b.run(recipe, login(8), "RACE="+race); ok || b.stored() != login(9) {
				t.Errorf("a newer login was overwritten: %q", b.stored())
			}
		})
	}
}
