package tool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.ReadOnly)
	plan := func(a, b string) args {
		return args{"plan": []args{{"step": "Set up", "status": a}, {"step": "Sell", "status": b}}}
	}
	for _, p := range []args{plan("in_progress", "pending"), plan("completed", "in_progress")} {
		if said, _ := r.call("update_plan", p); said != "Plan updated" {
			t.Error(said)
		}
	}
	r.set.CompletePlan()
	r.set.CompletePlan()
	r.call("update_plan", plan("completed", "completed"))
	r.set.CompletePlan()
	var got []string
	for _, rec := range r.records {
		b, err := rec.Wire()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), `"todo_list"`) {
			got = append(got, string(b))
		}
	}
	list := func(kind, id, a, b string) string {
		return `{"type":"item.` + kind + `","item":{"id":"` + id + `","type":"todo_list","items":[{"text":"Set up","completed":` + a + `},{"text":"Sell","completed":` + b + `}]}}`
	}
	want := []string{list("started", "item_0", "false", "false"), list("updated", "item_0", "true", "false"), list("completed", "item_0", "true", "false"),
		list("started", "item_1", "true", "true"), list("completed", "item_1", "true", "true")}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestNotOffered(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.ReadOnly, func(d *Deps, _ *sandbox.Spec) { d.UpdatePlan, d.ViewImage = false, false })
	for _, name := range []string{"update_plan", "view_image", "web_search"} {
		if said, res := r.call(name, args{}); said != "unsupported call: "+name || res.Status != event.Failed {
			t.Errorf("%s: %s", name, said)
		}
	}
}

func TestViewImage(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.ReadOnly, func(_ *Deps, s *sandbox.Spec) {
		s.Deny = []string{filepath.Join(s.Workspace, "private")}
		if err := os.Mkdir(s.Deny[0], 0o777); err != nil {
			t.Fatal(err)
		}
	})
	var p, j, g bytes.Buffer
	pic := image.NewGray(image.Rect(0, 0, 3, 2))
	for _, err := range []error{png.Encode(&p, pic), jpeg.Encode(&j, pic, nil), gif.Encode(&g, pic, nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	webp := "RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
	files := map[string]string{"a.txt": p.String(), "sub/b.jpg": j.String(), "c.gif": g.String(), "d.webp": webp, "private/e.png": p.String(),
		"text.png": "no image", "cut.png": p.String()[:20], "cut.webp": webp[:30], "empty.png": ""}
	for name, data := range files {
		r.write(name, data)
	}
	for path, kind := range map[string]string{"a.txt": "png", "sub/b.jpg": "jpeg", r.ws + "/c.gif": "gif", "d.webp": "webp"} {
		said, res := r.call("view_image", args{"path": path})
		rel := strings.TrimPrefix(path, r.ws+"/")
		want := `[{"type":"input_image","image_url":"data:image/` + kind + `;base64,` + base64.StdEncoding.EncodeToString([]byte(files[rel])) + `"}]`
		if said != want || res.Status != event.Completed {
			t.Errorf("%s: %.200s", path, said)
		}
	}
	if n := len(r.items()); n != 0 {
		t.Errorf("%d items for images that were shown", n)
	}
	if err := syscall.Mkfifo(filepath.Join(r.ws, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	big, err := os.Create(filepath.Join(r.ws, "big.png"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := big.Write(p.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := big.Truncate(1 << 32); err != nil {
		t.Fatal(err)
	}
	if err := big.Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"none.png":  "unable to locate image at `" + r.ws + "/none.png`: No such file or directory (os error 2)",
		"sub":       "unable to process image: `" + r.ws + "/sub` is not a file",
		"pipe":      "unable to process image: `" + r.ws + "/pipe` is not a file",
		"text.png":  "unable to process image: `" + r.ws + "/text.png` is not a PNG, JPEG, GIF or WebP image",
		"empty.png": "unable to process image: `" + r.ws + "/empty.png` is not a PNG, JPEG, GIF or WebP image",
		"cut.png":   "unable to process image: `" + r.ws + "/cut.png` is a PNG file that is cut short or damaged",
		"cut.webp":  "unable to process image: `" + r.ws + "/cut.webp` is a WebP file that is cut short or damaged",
		"big.png":   "unable to process image: `" + r.ws + "/big.png` is larger than 20 MiB",
	} {
		said, res := r.call("view_image", args{"path": path})
		if said != want || res.Status != event.Failed {
			t.Errorf("%s: %.300s", path, said)
		}
	}
	if said, res := r.call("view_image", args{"path": "private/e.png"}); res.Status != event.Failed || !strings.HasPrefix(said, "unable to locate image") {
		t.Errorf("a denied file was read: %.100s", said)
	}
	if said, _ := r.call("view_image", args{"file": "x"}); said != "failed to parse function arguments: missing field `path` at line 1 column 12" {
		t.Error(said)
	}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, res := r.call("request_user_input", json.RawMessage(`{"questions":[]}`))
	if said != "request_user_input is unavailable in Default mode" || res.Status != event.Declined || res.Denied.Source != "approval" {
		t.Errorf("%s %+v", said, res)
	}
	said, res = r.call("request_permissions", json.RawMessage(`{"reason":"x","permissions":{"network":{"enabled":true},"file_system":{"read":["/etc/hosts"],"write":["a","../out/b",".git/c"]}}}`))
	if said != `{"permissions":{"file_system":{"read":["/etc/hosts"],"write":["a"]}},"scope":"turn"}` || res.Status != event.Declined ||
		!strings.HasSuffix(res.Denied.Reason, "network, writing ../out/b, writing .git/c") {
		t.Errorf("%s %+v", said, res.Denied)
	}
	said, res = r.call("request_permissions", json.RawMessage(`{"permissions":{"file_system":{"write":["a"]}}}`))
	if said != `{"permissions":{"file_system":{"write":["a"]}},"scope":"turn"}` || res.Status != event.Completed {
		t.Errorf("%s %+v", said, res)
	}
	if its := r.items(); len(its) != 2 {
		t.Errorf("%+v", its)
	}
}
