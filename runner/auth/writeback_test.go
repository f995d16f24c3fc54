package auth

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// outside is a store that can be down.
type outside struct {
	mu    sync.Mutex
	down  int // calls that still fail
	calls int
	has   string
}

func (o *outside) put(_ context.Context, b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	if o.down > 0 {
		o.down--
		return errors.New("the vault is sealed: " + string(b))
	}
	o.has = string(b)
	return nil
}

// TestWriteback: the store outside has the new login before the first request
// carries its token.
func TestWriteback(t *testing.T) {
	r := newRig(t, -time.Hour)
	o := &outside{}
	r.src.Writeback = o.put
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	if o.calls != 1 || o.has != r.read() {
		t.Errorf("%d calls, has %q", o.calls, o.has)
	}
	if e := r.refreshes(); e[0].Writeback != "ok" || e[0].Persisted != byRename {
		t.Errorf("%+v", e)
	}
	if err := c.Close(context.Background()); err != nil || o.calls != 1 {
		t.Errorf("%v, %d calls", err, o.calls)
	}
}

// TestWritebackTriedAgain: a failure is not an end; Close tries again.
func TestWritebackTriedAgain(t *testing.T) {
	r := newRig(t, -time.Hour)
	o := &outside{down: 1}
	r.src.Writeback = o.put
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	if e := r.refreshes(); e[0].Writeback != "failed" {
		t.Errorf("%+v", e)
	}
	if err := c.Close(context.Background()); err != nil || o.has != r.read() {
		t.Errorf("%v, has %q", err, o.has)
	}
}

// TestWritebackFails: the run ends with an error, the login is kept, nothing is
// told, and the next run on this machine pays the debt even with nothing to
// refresh.
func TestWritebackFails(t *testing.T) {
	r := newRig(t, -time.Hour)
	o := &outside{down: 2}
	r.src.Writeback = o.put
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	err := c.Close(context.Background())
	if classOf(t, err) != ClassWriteback || !strings.Contains(err.Error(), r.path()) {
		t.Fatal(err)
	}
	got := tokensOf(t, r.read())
	for _, secret := range []string{got["refresh_token"], got["access_token"], got["id_token"]} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("tells a token: %v", err)
		}
	}
	next := r.load()
	if _, err := authorize(next); err != nil || o.calls != 2 {
		t.Errorf("%v, %d calls", err, o.calls)
	}
	if err := next.Close(context.Background()); err != nil || o.has != r.read() {
		t.Errorf("%v, has %q", err, o.has)
	}
	third := r.load()
	if err := third.Close(context.Background()); err != nil || o.calls != 3 {
		t.Errorf("%v, %d calls: a debt that is paid was paid again", err, o.calls)
	}
}

// TestOthersDebt: a login that somebody seeded meanwhile is nobody's debt.
func TestOthersDebt(t *testing.T) {
	r := newRig(t, -time.Hour)
	o := &outside{down: 2}
	r.src.Writeback = o.put
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(context.Background()); classOf(t, err) != ClassWriteback {
		t.Fatal(err)
	}
	r.write(r.tokens.Login(time.Hour))
	if err := r.load().Close(context.Background()); err != nil || o.calls != 2 {
		t.Errorf("%v, %d calls", err, o.calls)
	}
}

// TestWritebackOnly: a place that cannot be written, allowed by the user, with a
// store outside that is down. The login must end up somewhere.
func TestWritebackOnly(t *testing.T) {
	r := newRig(t, -time.Hour)
	o := &outside{down: 9}
	r.src.Writeback, r.src.ReadOnlyOK, r.src.RescueDir = o.put, true, t.TempDir()
	r.src.disk = &faultyDisk{disk: osDisk{}, bar: recoverySuffix, fault: readOnlyFile}
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	e := r.refreshes()[0]
	if e.Persisted != byRecovery || !strings.HasPrefix(e.Path, r.src.RescueDir) {
		t.Errorf("%+v", e)
	}
	err := c.Close(context.Background())
	if classOf(t, err) != ClassWriteback || !strings.Contains(err.Error(), e.Path) {
		t.Errorf("%v", err)
	}
	b, err := os.ReadFile(e.Path)
	if err != nil || tokensOf(t, string(b))["refresh_token"] != r.tokens.Refresh() {
		t.Errorf("the login is lost (%v)", err)
	}
	if fi, err := os.Stat(e.Path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	if n := strings.Join(r.notices(), " "); !strings.Contains(n, "auth_not_stored") {
		t.Errorf("notices %q", n)
	}
}

// TestWritebackOnlyComesBack: the same, and the store is up again at the end.
func TestWritebackOnlyComesBack(t *testing.T) {
	r := newRig(t, -time.Hour)
	o := &outside{down: 1}
	r.src.Writeback, r.src.ReadOnlyOK, r.src.RescueDir = o.put, true, t.TempDir()
	r.src.disk = &faultyDisk{disk: osDisk{}, bar: recoverySuffix, fault: readOnlyFile}
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(context.Background()); err != nil || tokensOf(t, o.has)["refresh_token"] != r.tokens.Refresh() {
		t.Errorf("%v, has %q", err, o.has)
	}
	if left, err := os.ReadDir(r.src.RescueDir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestReadOnlyAllowedWithoutStore: allowed, lost at the end, and said aloud.
func TestReadOnlyAllowedWithoutStore(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.src.ReadOnlyOK = true
	r.src.disk = &faultyDisk{disk: osDisk{}, bar: recoverySuffix, fault: readOnlyFile}
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	if e := r.refreshes()[0]; e.Persisted != nowhere || e.Outcome != "refreshed" {
		t.Errorf("%+v", e)
	}
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestSlowWriteback shows that a store that hangs does not hang the run.
func TestSlowWriteback(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.src.bounds.writeback = 20 * time.Millisecond
	r.src.Writeback = func(ctx context.Context, _ []byte) error {
		<-ctx.Done()
		return ctx.Err()
	}
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(context.Background()); classOf(t, err) != ClassWriteback {
		t.Error(err)
	}
}
