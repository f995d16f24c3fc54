package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// readOnlyFile is a fault: auth.json cannot be opened for writing.
func readOnlyFile(op, path string, _ int) error {
	if op == "open" && filepath.Base(path) == fileName {
		return unix.EROFS
	}
	return nil
}

// TestInspect: what status says, and that it changes and asks nothing.
func TestInspect(t *testing.T) {
	for _, tc := range []struct {
		name  string
		life  time.Duration
		set   func(*rig)
		ok    bool
		class string
		would string
		how   string
	}{
		{name: "good login", life: time.Hour, ok: true, would: "use the login", how: byRename},
		{name: "due", life: -time.Hour, ok: true, would: "refresh the login", how: byRename},
		{name: "due and read-only", life: -time.Hour, set: func(r *rig) {
			r.src.disk = &faultyDisk{disk: osDisk{}, bar: recoverySuffix, fault: readOnlyFile}
		}, class: ClassNotWritable, would: "exit code 5", how: nowhere},
		{name: "read-only but not due", life: time.Hour, set: func(r *rig) {
			r.src.disk = &faultyDisk{disk: osDisk{}, bar: recoverySuffix, fault: readOnlyFile}
		}, ok: true, would: "use the login", how: nowhere},
		{name: "missing", set: func(r *rig) { _ = os.Remove(r.path()) }, class: ClassMissing, would: "exit code 5"},
		{name: "corrupt", set: func(r *rig) { r.write([]byte("{")) }, class: ClassCorrupt, would: "exit code 5"},
		{name: "key", set: func(r *rig) { r.write([]byte(apiKeyFile)) }, ok: true, would: "OPENAI_API_KEY"},
		{name: "keyless", set: func(r *rig) { r.src.Provider = keyless }, ok: true, would: "no credential"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.life)
			if tc.set != nil {
				tc.set(r)
			}
			before, _ := os.ReadFile(r.path())
			st := Inspect(context.Background(), r.src)
			if st.OK != tc.ok || !strings.Contains(st.Would, tc.would) || (st.Problem == nil) != tc.ok {
				t.Errorf("%+v %+v", st, st.Problem)
			}
			if st.Problem != nil && st.Problem.Class != tc.class {
				t.Errorf("%+v", st.Problem)
			}
			if st.File != nil && st.File.Storing != tc.how {
				t.Errorf("storing %q", st.File.Storing)
			}
			text, err := json.Marshal(st)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"rt-test-0", "eyJ", "sk-file", "acct-test-0001"} {
				if bytes.Contains(text, []byte(secret)) {
					t.Errorf("tells %q: %s", secret, text)
				}
			}
			if after, _ := os.ReadFile(r.path()); !bytes.Equal(before, after) || r.beside() != nil || len(r.tokens.Requests()) != 0 {
				t.Errorf("changed something: %q, %d requests", r.beside(), len(r.tokens.Requests()))
			}
		})
	}
}

// TestInspectKnowsDeadLogins: what an earlier run was told is said.
func TestInspectKnowsDeadLogins(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.tokens.Always(refusal(401, "refresh_token_expired"))
	if _, err := authorize(r.load()); err == nil {
		t.Fatal("authorized")
	}
	if st := Inspect(context.Background(), r.src); st.OK || st.Problem.Class != ClassRefreshExpired {
		t.Errorf("%+v %+v", st, st.Problem)
	}
}

// TestImport: only if missing; force otherwise; nothing that is not a login.
func TestImport(t *testing.T) {
	seed, other := []byte(chatgptFile("a")), []byte(apiKeyFile)
	ctx := context.Background()
	home := filepath.Join(t.TempDir(), "new", "home")
	path := filepath.Join(home, fileName)
	for i, step := range []struct {
		text  []byte
		force bool
		did   string
		class string
		has   []byte
	}{
		{[]byte("{}"), false, "", ClassCorrupt, nil},
		{nil, true, "", ClassCorrupt, nil},
		{[]byte(base64.StdEncoding.EncodeToString(seed)), false, "", ClassCorrupt, nil},
		{seed, false, Imported, "", seed},
		{seed, false, Unchanged, "", seed},
		{other, false, Kept, "", seed},
		{other, true, Replaced, "", other},
		{[]byte("sk-raw"), true, "", ClassCorrupt, other},
	} {
		did, err := Import(ctx, home, step.text, step.force)
		if did != step.did || classOf(t, err) != step.class {
			t.Errorf("step %d: %q %v", i, did, err)
		}
		if b, _ := os.ReadFile(path); !bytes.Equal(b, step.has) {
			t.Errorf("step %d: has %q", i, b)
		}
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Import(ctx, home, seed, false); classOf(t, err) != ClassCorrupt {
		t.Error(err)
	}
	if did, err := Import(ctx, home, seed, true); did != Replaced || err != nil {
		t.Error(did, err)
	}
}

// TestImportTogether: of many seeds at once, one is stored.
func TestImportTogether(t *testing.T) {
	home := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	did := map[string]int{}
	for i := range 16 {
		wg.Go(func() {
			d, err := Import(context.Background(), home, []byte(`{"OPENAI_API_KEY":"sk-`+string(rune('a'+i))+`"}`), false)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			did[d]++
		})
	}
	wg.Wait()
	if did[Imported] != 1 || did[Kept] != 15 {
		t.Error(did)
	}
}

// TestImportThroughLink: the file behind a link is made, the link stays.
func TestImportThroughLink(t *testing.T) {
	home, real := t.TempDir(), filepath.Join(t.TempDir(), "login")
	if err := os.Symlink(real, filepath.Join(home, fileName)); err != nil {
		t.Fatal(err)
	}
	if did, err := Import(context.Background(), home, []byte(apiKeyFile), false); did != Imported || err != nil {
		t.Fatal(did, err)
	}
	if b, err := os.ReadFile(real); err != nil || string(b) != apiKeyFile {
		t.Error(string(b), err)
	}
}

// TestImportClearsOldNews: a new login is not held to what was said of the old.
func TestImportClearsOldNews(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.tokens.Then(refusal(401, "refresh_token_expired"))
	if _, err := authorize(r.load()); err == nil {
		t.Fatal("authorized")
	}
	if did, err := Import(context.Background(), r.src.Home, r.tokens.Login(-time.Hour), true); did != Replaced || err != nil {
		t.Fatal(did, err)
	}
	if _, err := authorize(r.load()); err != nil {
		t.Error(err)
	}
}
