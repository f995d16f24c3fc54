package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner"
)

// What is written for people is checked like code: commands parse, links lead
// somewhere, tables are the program's own, published schemas are what it prints.

const root = "../.."

// published are the copies of the schemas, and how they are made.
var published = map[string][]string{
	"config.schema.json":       {"policy", "schema", "config"},
	"requirements.schema.json": {"policy", "schema", "requirements"},
	"report.schema.json":       {"report", "schema", "report"},
	"events.schema.json":       {"report", "schema", "events"},
}

func TestPublishedSchemas(t *testing.T) {
	for name, args := range published {
		var out bytes.Buffer
		rt := &runtime{ctx: t.Context(), stdout: &out, stderr: os.Stderr, cwd: t.TempDir()}
		if code := run(rt, args); code != 0 {
			t.Fatalf("nightshift %v ends with %d", args, code)
		}
		have, err := os.ReadFile(filepath.Join(root, ".github/schemas", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, out.Bytes()) {
			t.Errorf("%s is not what the program has; run `nightshift %s > .github/schemas/%s`", name, strings.Join(args, " "), name)
		}
	}
}

// The examples name their schema for editors, fit it, and load with
// --strict-config, together, without a word about them.
func TestExamplesLoad(t *testing.T) {
	dir := filepath.Join(root, ".github/examples")
	home, ws := t.TempDir(), t.TempDir()
	for _, name := range []string{"config", "requirements"} {
		file := filepath.Join(dir, name+".toml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		hint := "#:schema ../schemas/" + name + ".schema.json\n"
		if !strings.HasPrefix(string(text), hint) {
			t.Errorf("%s does not begin with %q", file, hint)
		}
		var value any
		if err := toml.Unmarshal(text, &value); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := schemaOf(t, name+".schema.json").Validate(plain(t, value)); err != nil {
			t.Errorf("%s does not fit its schema: %v", file, err)
		}
		if errs := policy.Lint(name, file, text); errs != nil {
			t.Errorf("%s: %v", file, errs)
		}
		if name == "config" {
			if err := os.WriteFile(filepath.Join(home, "config.toml"), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	requirements, err := filepath.Abs(filepath.Join(dir, "requirements.toml"))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script.jsonl")
	// The hook refuses this; where hooks did not run, the answer would differ.
	write := `{"items":[{"call":"exec_command","args":{"cmd":"git push origin main"}},{"call":"exec_command","args":{"cmd":"echo one > made"}}]}` +
		"\n" + `{"items":[{"message":"done"}]}` + "\n"
	if err := os.WriteFile(script, []byte(write), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "first"}} {
		if out, err := exec.Command("git", append([]string{"-C", ws}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git: %v: %s", err, out)
		}
	}
	cmd := exec.Command(binary(t), "exec", "--json", "--strict-config", "--requirements", requirements, "--model-script", script, "publish")
	cmd.Dir = ws
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CODEX_HOME=" + home, "TERM=dumb", "OTEL_TOKEN=abc"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if !strings.Contains(string(out), `"status":"declined"`) || !strings.Contains(string(out), "pushing is a later step") {
		t.Errorf("the hook of the example refused nothing:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(ws, "made")); err != nil {
		t.Errorf("a plain command did not run: %v\n%s", err, out)
	}
	for _, word := range []string{"unknown key", "without effect", "ignored"} {
		if strings.Contains(stderr.String(), word) {
			t.Errorf("an example has a key that is %s:\n%s", word, stderr.String())
		}
	}
}

func schemaOf(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".github/schemas", name))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plain is a TOML value as JSON has it.
func plain(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The manual's tables are the program's.
func TestTablesOfTheManual(t *testing.T) {
	text := readText(t, "README.md")
	var codes strings.Builder
	codes.WriteString("| code | outcome |\n| --- | --- |\n")
	for _, c := range runner.ExitCodes {
		fmt.Fprintf(&codes, "| %d | %s |\n", c.Code, c.Meaning)
		if row := fmt.Sprintf("\n| %d | `", c.Code); c.Code != 0 && !strings.Contains(section(text, "Troubleshooting by exit code"), row) {
			t.Errorf("Troubleshooting has no row for code %d", c.Code)
		}
	}
	codes.WriteString("| 128+n | ended by signal n (134 also when Go itself gives up: no memory, no thread) |\n")
	if !strings.Contains(text, codes.String()) {
		t.Errorf("the table of exit codes is not runner.ExitCodes:\n%s", codes.String())
	}

	keys := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(section(text, "Configuration"), -1) {
		for _, k := range strings.Split(row[1], ", ") {
			keys[strings.Trim(k, "`")] = true
		}
	}
	own := ownKeys(t, "config.schema.json")
	for k := range own {
		if !keys[k] {
			t.Errorf("the table of our keys lacks %s", k)
		}
	}
	for k := range keys {
		if !own[k] {
			t.Errorf("the table of our keys has %s, which is none", k)
		}
	}
	for k := range ownKeys(t, "requirements.schema.json") {
		if !own[k] && !strings.Contains(section(text, "Configuration"), "`"+k+"`") {
			t.Errorf("the requirement %s is not named", k)
		}
	}
}

// ownKeys reads the keys that a schema says only we know. Names of events and of
// profiles do not count.
func ownKeys(t *testing.T, file string) map[string]bool {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal([]byte(readText(t, ".github/schemas/"+file)), &schema); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	var walk func(s map[string]any, path string)
	walk = func(s map[string]any, path string) {
		if d, _ := s["description"].(string); strings.HasSuffix(d, policy.OwnKey) {
			out[regexp.MustCompile(`^hooks\.\w+`).ReplaceAllString(path, "hooks.*")] = true
		}
		properties, _ := s["properties"].(map[string]any)
		for name, p := range properties {
			if path == "" && name == "profiles" {
				continue
			}
			walk(p.(map[string]any), strings.TrimPrefix(path+"."+name, "."))
		}
		for key, suffix := range map[string]string{"additionalProperties": ".*", "items": "[]"} {
			if sub, ok := s[key].(map[string]any); ok {
				walk(sub, path+suffix)
			}
		}
	}
	walk(schema, "")
	if len(out) == 0 {
		t.Fatalf("%s marks no key", file)
	}
	return out
}

func section(text, title string) string {
	_, after, _ := strings.Cut(text, "\n## "+title+"\n")
	body, _, _ := strings.Cut(after, "\n## ")
	return body
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tree lists the files of the project, by slash-separated names.
func tree(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "dist" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksResolve(t *testing.T) {
	for _, name := range tree(t) {
		if !strings.HasSuffix(name, ".md") || strings.Contains(name, "testdata/") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(readText(t, name), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := filepath.Join(filepath.Dir(name), target)
			if target == "" {
				path = name
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(readText(t, path)), anchor) {
				t.Errorf("%s links to %s, but there is no such heading", name, m[1])
			}
		}
	}
}

// anchors are the names of the headings of a page.
func anchors(page string) []string {
	var out []string
	for _, h := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		out = append(out, strings.ReplaceAll(strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_' || r == ' ' {
				return unicode.ToLower(r)
			}
			return -1
		}, h[1]), " ", "-"))
	}
	return out
}

// onlyText marks a long test of one goroutine that reads texts: the race detector
// would make it ten times as long and has nothing to see. It runs beside others.
func onlyText(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("reads texts only")
	}
	t.Parallel()
}

// forbidden is what must not stand in the tree, with the reason, and the files
// that have it for a reason of their own.
var forbidden = []struct {
	words  string // regular expression
	in     string // files, regular expression; "" all
	but    string // except these
	reason string
}{
	{`/(work|home)/(main|shared|agent|user)\b|/tmp/ns\b|\bshared/reference\b`, "", "", "a path of one machine"},
	{`(?i)\b(proxy|sum)\.golang\.org|registry\.npmjs|pypi\.org|pythonhosted|\bcrates\.io|rubygems\.org|repo1?\.maven`, "", `^runner/caches\.go$`,
		"the host of a package registry (Go's documented default is needed where GOPROXY is extended)"},
	{`\b(TODO|FIXME|XXX)\b`, `\.go$`, `_test\.go$`, "something unfinished"},
	{`(?i)\bworkplace\b|\bthe lead owns\b`, "", "", "how this was made is nobody's business here"},
	{`(?i)\blorem ipsum\b|\bplaceholder text\b|\bcoming soon\b`, "", "", "nothing written yet"},
}

// Every direct dependency has its reason in ARCHITECTURE.md, and no reason
// outlives its dependency.
func TestDependenciesAreJustified(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	direct := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t([^ ]+) v[^ ]+$`).FindAllStringSubmatch(read("go.mod"), -1) {
		direct[m[1]] = false
	}
	_, table, _ := strings.Cut(read(".github/ARCHITECTURE.md"), "## Dependencies")
	table, _, _ = strings.Cut(table, "\n## ")
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			found := false
			prefix, many := strings.CutSuffix(m[1], "…")
			for module := range direct {
				if module == m[1] || many && strings.HasPrefix(module, prefix) {
					direct[module], found = true, true
				}
			}
			if !found {
				t.Errorf("ARCHITECTURE.md justifies %s, which go.mod does not require", m[1])
			}
		}
	}
	for module, justified := range direct {
		if !justified {
			t.Errorf("go.mod requires %s; ARCHITECTURE.md does not say what for", module)
		}
	}
}

func TestForbiddenWords(t *testing.T) {
	onlyText(t)
	type search struct{ words, in, but *regexp.Regexp }
	var searches []search
	for _, f := range forbidden {
		searches = append(searches, search{regexp.MustCompile(f.words), regexp.MustCompile(f.in), regexp.MustCompile(cmp.Or(f.but, `^$`))})
	}
	for _, name := range tree(t) {
		if name == "cmd/nightshift/docs_test.go" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(data, 0) >= 0 {
			continue
		}
		for i, s := range searches {
			if !s.in.MatchString(name) || s.but.MatchString(name) {
				continue
			}
			if at := s.words.FindIndex(data); at != nil {
				t.Errorf("%s:%d has %q: %s", name, 1+bytes.Count(data[:at[0]], []byte("\n")), data[at[0]:at[1]], forbidden[i].reason)
			}
		}
	}
}

// grammarOf makes the grammar once for a test.
func grammarOf(t *testing.T) *kong.Kong {
	t.Helper()
	k, err := newParser(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	return k
}
