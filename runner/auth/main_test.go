package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// childEnv makes the test binary a run of its own: what is tested across
// processes, killed, or confined to a mount namespace happens there.
const childEnv = "NIGHTSHIFT_AUTH_TEST_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(childMain(spec))
	}
	goleak.VerifyTestMain(m)
}

// childSpec is what a child does: load the credential of Home and authorize one
// request.
type childSpec struct {
	Home, URL string
	// KillAt is the step of the disk or the network before which the child kills
	// itself; 0: never. Steps are logged to Log.
	KillAt int
	Log    string
	// Bar makes opening files whose name contains it fail with EROFS.
	Bar string
	// Gate is a file that is waited for after loading; Gate.ready tells that.
	Gate string
	// Model, if set, is asked once with the credential; a 401 is reacted to.
	Model string
	// Setup are mounts made first: "tmpfs PATH OPTIONS", "bind FROM TO",
	// "robind PATH".
	Setup      []string
	ReadOnlyOK bool
	Writeback  string // file that the write-back appends to
	SkipAuth   bool
	Cleanup    []string // paths listed in the result
}

// childResult is what it says on stdout.
type childResult struct {
	Loaded    bool
	Class     string
	Message   string
	Token     string // digest of the access token that a request would carry
	Refreshed []event.AuthRefreshed
	Notices   []string
	File      string // auth.json after that
	Beside    []string
	Status    int
}

func childMain(text string) int {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	for _, m := range spec.Setup {
		if err := childMount(strings.Fields(m)); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", m, err)
			return 4
		}
	}
	out, err := json.Marshal(childRun(spec))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	os.Stdout.Write(out)
	return 0
}

func childRun(spec childSpec) (r childResult) {
	steps := &stepper{killAt: spec.KillAt, log: spec.Log}
	var mu sync.Mutex
	src := Sources{
		Home: spec.Home, RefreshURL: spec.URL, ReadOnlyOK: spec.ReadOnlyOK,
		Provider: Provider{Name: "mock", RequiresOpenAIAuth: true},
		Emit: func(e event.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e := e.(type) {
			case event.AuthRefreshed:
				r.Refreshed = append(r.Refreshed, e)
			case event.Notice:
				r.Notices = append(r.Notices, e.Class)
			}
		},
	}
	if spec.Log != "" || spec.Bar != "" {
		src.disk = &faultyDisk{disk: osDisk{}, steps: steps, bar: spec.Bar}
		src.HTTP = &http.Client{Transport: &steppingTransport{steps, &http.Transport{DisableKeepAlives: true}}}
	}
	if spec.Writeback != "" {
		src.Writeback = func(_ context.Context, b []byte) error { return os.WriteFile(spec.Writeback, b, 0o600) }
	}
	defer func() {
		b, _ := os.ReadFile(filepath.Join(spec.Home, fileName))
		r.File = string(b)
		entries, _ := os.ReadDir(spec.Home)
		for _, e := range entries {
			r.Beside = append(r.Beside, e.Name())
		}
	}()
	c, err := Load(context.Background(), src)
	if err != nil {
		r.fail(err)
		return r
	}
	r.Loaded = true
	for _, n := range c.Notices() {
		r.Notices = append(r.Notices, n.Class)
	}
	if spec.Gate != "" {
		_ = os.WriteFile(spec.Gate+".ready", nil, 0o600) // the parent's wait has a bound
	}
	for spec.Gate != "" {
		if _, err := os.Stat(spec.Gate); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !spec.SkipAuth {
		r.ask(c, spec.Model)
	}
	if err := c.Close(context.Background()); err != nil && r.Class == "" {
		r.fail(err)
	}
	return r
}

func (r *childResult) ask(c *Credential, model string) {
	url := model
	if url == "" {
		url = "http://127.0.0.1:1/v1/responses"
	}
	for range 2 {
		req, _ := http.NewRequest(http.MethodPost, url, nil)
		if err := c.Authorize(req); err != nil {
			r.fail(err)
			return
		}
		r.Token = tokenDigest(NewSecret(strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")))
		if model == "" {
			return
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			r.fail(err)
			return
		}
		resp.Body.Close()
		if r.Status = resp.StatusCode; r.Status != http.StatusUnauthorized {
			return
		}
		if err := c.Refused(context.Background()); err != nil {
			r.fail(err)
			return
		}
	}
}

func (r *childResult) fail(err error) {
	r.Message = err.Error()
	r.Class = "?"
	var e *Error
	if errors.As(err, &e) {
		r.Class = e.Class
	}
}

func childMount(w []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	switch w[0] {
	case "tmpfs": // what is there is copied into it
		old, err := os.ReadFile(filepath.Join(w[1], fileName))
		if err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", w[1], "tmpfs", 0, w[2]); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(w[1], fileName), old, 0o600)
	case "fill": // fills the file system until nothing fits
		f, err := os.Create(filepath.Join(w[1], "filler"))
		if err != nil {
			return err
		}
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
		return f.Close()
	case "bind":
		return unix.Mount(w[1], w[2], "", unix.MS_BIND, "")
	case "robind":
		if err := unix.Mount(w[1], w[1], "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		return unix.Mount("", w[1], "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	return errors.New("unknown mount")
}

// child starts a child; its result is read by finish.
type child struct {
	cmd *exec.Cmd
	out bytes.Buffer
	err bytes.Buffer
}

func startChild(t *testing.T, spec childSpec) *child {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self)}
	// The race detector sleeps for a second at each exit otherwise.
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	if len(spec.Setup) > 0 {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Geteuid() != 0 {
			c.cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
		}
	}
	if err := c.cmd.Start(); err != nil {
		if len(spec.Setup) > 0 {
			t.Skipf("no mount namespace here: %v", err)
		}
		t.Fatal(err)
	}
	return c
}

// finish waits; killed is true if the child died of SIGKILL.
func (c *child) finish(t *testing.T) (r childResult, killed bool) {
	t.Helper()
	err := c.cmd.Wait()
	if ws, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
		return r, true
	}
	if c.cmd.ProcessState.ExitCode() == 4 {
		t.Skipf("the mounts cannot be made here: %s", c.err.String())
	}
	if err != nil {
		t.Fatalf("child: %v\n%s", err, c.err.String())
	}
	if err := json.Unmarshal(c.out.Bytes(), &r); err != nil {
		t.Fatalf("child said %q: %v", c.out.String(), err)
	}
	return r, false
}

func runChild(t *testing.T, spec childSpec) childResult {
	t.Helper()
	r, killed := startChild(t, spec).finish(t)
	if killed {
		t.Fatal("the child was killed")
	}
	return r
}

// awaitFile waits for a file, bounded.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for range 3000 {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s did not come", path)
}

// rig is a home with a login, its token endpoint, and what was said.
type rig struct {
	t      *testing.T
	tokens *runnertest.Tokens
	src    Sources

	mu     sync.Mutex
	events []event.Event
	masked []string
}

// newRig makes a home whose access token lives for life (negative: it has run
// out).
func newRig(t *testing.T, life time.Duration) *rig {
	t.Helper()
	r := &rig{t: t, tokens: runnertest.NewTokens(t)}
	r.src = Sources{
		Home: t.TempDir(), RefreshURL: r.tokens.URL,
		Provider: Provider{Name: "mock", RequiresOpenAIAuth: true, BaseURL: "http://127.0.0.1:1/v1"},
		Emit: func(e event.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
		Mask: func(s string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.masked = append(r.masked, s)
		},
		bounds: bounds{pause: time.Millisecond},
	}
	r.write(r.tokens.Login(life))
	return r
}

func (r *rig) path() string { return filepath.Join(r.src.Home, fileName) }

func (r *rig) write(text []byte) {
	r.t.Helper()
	if err := os.WriteFile(r.path(), text, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read() string {
	r.t.Helper()
	b, err := os.ReadFile(r.path())
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *rig) load() *Credential {
	r.t.Helper()
	c, err := Load(context.Background(), r.src)
	if err != nil {
		r.t.Fatalf("Load: %v", err)
	}
	r.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// authorize sends the credential nowhere and returns the header.
func authorize(c *Credential) (string, error) {
	req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:1/v1/responses", nil)
	if err != nil {
		return "", err
	}
	err = c.Authorize(req)
	return req.Header.Get("Authorization"), err
}

func (r *rig) refreshes() (list []event.AuthRefreshed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e, ok := e.(event.AuthRefreshed); ok {
			list = append(list, e)
		}
	}
	return list
}

func (r *rig) notices() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e, ok := e.(event.Notice); ok {
			list = append(list, e.Class)
		}
	}
	return list
}

// classOf returns the class of an auth error, "" for nil.
func classOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("not an auth error: %v", err)
	}
	return e.Class
}

// beside lists the folder of auth.json without it and its lock.
func (r *rig) beside() (list []string) {
	r.t.Helper()
	entries, err := os.ReadDir(r.src.Home)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != fileName && e.Name() != fileName+lockSuffix {
			list = append(list, e.Name())
		}
	}
	return list
}
