package patch

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// readable are the bytes that a vector cannot hold as they are.
var readable = strings.NewReplacer("^M", "\r", "^BOM", byteOrderMark, "^NBSP", "\u00a0", "^EOF\n", "", "^FF", "\xff")

// tree reads all files and links below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if d.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(p)
			out[rel] = "-> " + to
			return err
		}
		b, err := os.ReadFile(p)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// apply runs Helper as the sandbox would and returns its responses.
func apply(t *testing.T, req Request) []Response {
	t.Helper()
	in, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := Helper(nil, bytes.NewReader(in), &out, &errs); code == 2 {
		t.Fatalf("helper: %s", &errs)
	}
	var all []Response
	for dec := json.NewDecoder(&out); dec.More(); {
		var r Response
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// TestApplyVectors runs every testdata/apply/*.txtar: "patch" is applied to the
// files of before/ and must give those of after/ and the lines of "summary", or
// the message of "error" and no change at all.
func TestApplyVectors(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/apply/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d vectors, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			before, after := map[string]string{}, map[string]string{}
			var text, summary, failure string
			for _, f := range ar.Files {
				data := readable.Replace(string(f.Data))
				switch {
				case f.Name == "patch":
					text = data
				case f.Name == "summary":
					summary = data
				case f.Name == "error":
					failure = strings.NewReplacer("$DIR", dir, "$PARENT", filepath.Dir(dir)).Replace(strings.TrimSuffix(data, "\n"))
				case strings.HasPrefix(f.Name, "before/"):
					before[f.Name[len("before/"):]] = data
				case strings.HasPrefix(f.Name, "after/"):
					after[f.Name[len("after/"):]] = data
				default:
					t.Fatalf("unknown part %q", f.Name)
				}
			}
			lay(t, dir, before)
			got := apply(t, Request{Patch: text, Scope: Scope{Workdir: dir, Roots: []string{dir}, ProtectNames: []string{".git", ".codex"}}})
			last := got[len(got)-1]
			if failure != "" {
				after = before
				if last.Stage != Stopped || last.Message != failure {
					t.Errorf("stage %s, message:\n%s\nwant:\n%s", last.Stage, last.Message, failure)
				}
			} else {
				if last.Stage != Done {
					t.Fatalf("not applied: %s", last.Message)
				}
				if d := cmp.Diff(summary, strings.Join(last.Summary, "\n")+"\n"); d != "" {
					t.Errorf("summary (-want +got):\n%s", d)
				}
			}
			if d := cmp.Diff(after, tree(t, dir)); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
			roundTrip(t, text)
		})
	}
}

// roundTrip checks that printing a patch and parsing it again changes nothing.
func roundTrip(t *testing.T, text string) {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		return
	}
	printed := p.String()
	again, err := Parse(printed)
	if err != nil {
		t.Fatalf("the printed patch does not parse: %v\n%s", err, printed)
	}
	if d := cmp.Diff(p, again, cmp.AllowUnexported(Line{})); d != "" {
		t.Errorf("printed and parsed (-first +again):\n%s", d)
	}
	if again.String() != printed {
		t.Errorf("printing is not stable:\n%s\n%s", printed, again)
	}
}
