package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// protocolVersion is what is offered to servers, the version of the reference.
// Later versions begin with a question that older servers do not know.
const protocolVersion = "2025-06-18"

// Bounds of an end: how long a server may take after its input is closed,
// after SIGTERM, and how long a call may take to notice that it was cancelled.
const (
	endByItself    = 500 * time.Millisecond
	endAfterTerm   = 500 * time.Millisecond
	endSession     = 1500 * time.Millisecond
	noticingCancel = time.Second
)

// server is one server from its start to its end.
type server struct {
	set       *Set
	cfg       policy.MCPServer
	namespace string
	ctx       context.Context // its life
	kill      context.CancelCauseFunc

	ready chan struct{} // closed when it is ready or has failed
	// Written before ready is closed.
	startErr     error
	took         time.Duration
	session      *sdk.ClientSession
	proc         *sandbox.Process // nil over HTTP
	instructions string
	tools        []*remote

	stderr tail
	errEnd chan struct{} // closed when stderr is at its end

	mu   sync.Mutex
	dead error // why it can no longer be called
}

func newServer(ctx context.Context, set *Set, cfg policy.MCPServer, namespace string) *server {
	s := &server{set: set, cfg: cfg, namespace: namespace, ready: make(chan struct{}), errEnd: make(chan struct{})}
	s.ctx, s.kill = context.WithCancelCause(ctx)
	if s.cfg.StartupTimeout <= 0 {
		s.cfg.StartupTimeout = defaultStartup
	}
	if s.cfg.ToolTimeout <= 0 {
		s.cfg.ToolTimeout = defaultCall
	}
	return s
}

func (s *server) isReady() bool {
	select {
	case <-s.ready:
		return s.startErr == nil
	default:
		return false
	}
}

func (s *server) emit(status event.ServerStatus) {
	if s.set.o.Log == nil {
		return
	}
	status.Server = s.cfg.Name
	s.set.o.Log.Emit(status)
}

// live starts the server, says how that went, and stays until its end.
func (s *server) live() {
	began := time.Now()
	err := s.switchedOff()
	off := err != nil
	if !off {
		err = s.start()
		if err != nil {
			err = s.advise(err)
		}
	}
	s.took = time.Since(began)
	if err != nil {
		s.startErr = err
		s.setDead(err)
		status := event.ServerStatus{Status: "failed", Message: err.Error(), DurationMS: s.took.Milliseconds()}
		if off {
			status.Status = "disabled"
		}
		s.emit(status)
		close(s.ready)
		s.hangUp()
		return
	}
	names := make([]string, 0, len(s.tools))
	for _, t := range s.tools {
		names = append(names, t.remoteName)
	}
	s.emit(event.ServerStatus{Status: "ready", Tools: names, DurationMS: s.took.Milliseconds()})
	close(s.ready)
	cause := s.session.Wait()
	if s.set.isClosed() || s.died() == nil && s.ctx.Err() != nil {
		return // the run's own doing
	}
	s.stop()
	err = s.explain(cause)
	s.setDead(err)
	s.emit(event.ServerStatus{Status: "died", Message: err.Error()})
	s.hangUp()
}

// switchedOff says why a server is not started at all.
func (s *server) switchedOff() error {
	switch {
	case s.cfg.DisabledBy != "":
		return fmt.Errorf("switched off by the requirements (%s)", s.cfg.DisabledBy)
	case !s.cfg.Enabled:
		return errors.New("switched off by its own setting `enabled`")
	}
	return nil
}

// start connects and asks for the tools, all within the start-up bound.
func (s *server) start() error {
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.cfg.StartupTimeout, lateError(s.cfg.StartupTimeout))
	defer cancel()
	// A server that takes no input blocks the write, which knows no context:
	// only its end lets go.
	release := context.AfterFunc(ctx, func() {
		if s.ctx.Err() == nil {
			s.kill(context.Cause(ctx))
		}
	})
	defer release()
	transport, err := s.transport()
	if err != nil {
		return err
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "nightshift", Title: "nightshift", Version: s.set.o.Version}, &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{}, // no roots, no sampling, no elicitation
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	})
	for _, method := range rawMethods {
		if err := sdk.AddSendingCustomMethod[*rawParams, *rawResult](client, rawPrefix+method); err != nil {
			return err
		}
	}
	client.AddSendingMiddleware(s.anyVersion)
	session, err := client.Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: protocolVersion})
	if err != nil {
		return s.startError(ctx, err)
	}
	s.session = session
	if r := session.InitializeResult(); r != nil {
		s.instructions = r.Instructions
	}
	if err := s.listTools(ctx); err != nil {
		return s.startError(ctx, err)
	}
	if !release() {
		return s.startError(ctx, context.Cause(ctx))
	}
	return nil
}

// anyVersion goes on with a server that names a version which the SDK does not
// know, as one does whose author wrote down a number of his own: what is asked
// of servers here has not changed since the first version.
func (s *server) anyVersion(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		if r, ok := res.(*sdk.InitializeResult); ok && err == nil && r != nil && !slices.Contains(sdk.SupportedProtocolVersions(), r.ProtocolVersion) {
			s.notice("mcp_version_unknown", fmt.Sprintf("MCP server %s speaks the protocol version %q, which is not known; it is taken for %s", s.cfg.Name, r.ProtocolVersion, protocolVersion))
			r.ProtocolVersion = protocolVersion
		}
		return res, err
	}
}

func (s *server) startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return s.explain(err)
}

// lateError is a start-up that took longer than its bound.
type lateError time.Duration

// Error names the key that sets the bound.
func (e lateError) Error() string {
	return fmt.Sprintf("it did not answer within its startup_timeout_sec of %s", time.Duration(e))
}

// downloaders are programs that fetch a server before they run it.
var downloaders = [...]string{"npx", "npm", "pnpm", "yarn", "bunx", "uvx", "uv", "pipx", "docker", "podman"}

// advise adds what to do about a failed start where the cause is known but the
// server does not say it.
func (s *server) advise(err error) error {
	stdio := s.cfg.URL == ""
	late := errors.As(err, new(lateError))
	switch {
	case stdio && len(s.cfg.Args) == 0 && strings.ContainsAny(s.cfg.Command, " \t"):
		return fmt.Errorf("%w; command is one program, its arguments belong into args", err)
	case stdio && s.cfg.Sandbox != "none" && slices.Contains(s.set.o.Env, noNetwork) && (late || slices.Contains(downloaders[:], filepath.Base(s.cfg.Command))):
		return fmt.Errorf("%w; it runs in the sandbox without network: install it before the run, allow the hosts that it needs, or set mcp_servers.%s.sandbox = \"none\"", err, s.cfg.Name)
	case !stdio && s.cfg.BearerTokenEnvVar == "" && strings.HasSuffix(err.Error(), http.StatusText(http.StatusUnauthorized)):
		return fmt.Errorf("%w; it wants a credential: name the variable that holds its token in mcp_servers.%s.bearer_token_env_var", err, s.cfg.Name)
	}
	return err
}

// noNetwork is how the environment of commands says that they have none.
const noNetwork = "CODEX_SANDBOX_NETWORK_DISABLED=1"

// explain adds what is known about a server's end.
func (s *server) explain(err error) error {
	var request *url.Error
	if errors.As(err, &request) { // what is around it is the way to it, and it repeats the address, with its query
		err = fmt.Errorf("the request to its url failed: %w", request.Err)
	}
	if dead := s.died(); dead != nil {
		err = dead
	}
	if s.proc != nil {
		// The pipe may end a moment before the process.
		lost := err == nil || errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE)
		if lost && within(s.proc.Done(), endByItself) {
			if exit, waitErr := s.proc.Wait(); waitErr == nil {
				err = fmt.Errorf("its process ended with exit code %d", exit.Code)
			}
			<-s.errEnd
		}
		if said := s.stderr.String(); said != "" && err != nil {
			return fmt.Errorf("%w; it said: %s", err, said)
		}
	}
	if err == nil {
		err = sdk.ErrConnectionClosed
	}
	return err
}

// transport starts the process, or prepares the HTTP client.
func (s *server) transport() (sdk.Transport, error) {
	if s.cfg.URL != "" {
		close(s.errEnd)
		return s.httpTransport()
	}
	if s.cfg.Command == "" {
		close(s.errEnd)
		return nil, errors.New("it has neither a command nor a url")
	}
	dir := s.cfg.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(s.set.o.Dir, dir)
	}
	proc, err := s.set.o.Sandbox.Start(s.ctx, sandbox.Command{
		Argv: append([]string{s.cfg.Command}, s.cfg.Args...), Dir: dir, Env: s.environment(),
		KeepStdin: true, SplitStderr: true, Unsandboxed: s.cfg.Sandbox == "none",
	})
	if err != nil {
		close(s.errEnd)
		return nil, err
	}
	s.proc = proc
	s.set.wg.Go(func() {
		defer close(s.errEnd)
		said := s.set.o.Mask.Writer(&s.stderr)
		_, _ = io.Copy(said, proc.Stderr()) // its end is the process's end; the tail is all that is wanted
		_ = said.Close()                    // a tail takes everything
	})
	f := &frames{br: bufio.NewReaderSize(proc.Output(), 64<<10), failed: func(err error) {
		s.setDead(err)
		s.kill(err)
	}}
	return &sdk.IOTransport{Reader: f, Writer: input{proc}, MaxLineLength: maxMessage + 1024}, nil
}

// input writes messages to a process.
type input struct{ p *sandbox.Process }

func (i input) Write(b []byte) (int, error) {
	if _, err := i.p.Write(rightMethod(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (i input) Close() error { return i.p.CloseStdin() }

// environment is the base environment with what the server's configuration
// adds. A name comes once: programs read the first one they find.
func (s *server) environment() []string {
	var env []string
	at := map[string]int{}
	set := func(name, value string) {
		if i, ok := at[name]; ok {
			env[i] = name + "=" + value
			return
		}
		at[name] = len(env)
		env = append(env, name+"="+value)
	}
	for _, kv := range s.set.o.Env {
		name, value, _ := strings.Cut(kv, "=")
		set(name, value)
	}
	for _, name := range s.cfg.EnvVars {
		if value, ok := s.set.o.LookupEnv(name); ok {
			set(name, value)
		}
	}
	for name, value := range s.cfg.Env {
		set(name, value)
	}
	return env
}

func (s *server) setDead(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead == nil {
		s.dead = err
	}
}

func (s *server) died() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// request makes one request and returns the answer as it came. It returns
// soon after ctx ends, whatever the server does.
func (s *server) request(ctx context.Context, method string, p *rawParams) (json.RawMessage, error) {
	if err := s.died(); err != nil {
		return nil, err
	}
	type answer struct {
		r   *rawResult
		err error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := sdk.CallCustomMethod[*rawParams, *rawResult](ctx, s.session, rawPrefix+method, p)
		done <- answer{r, err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		select {
		case a = <-done:
		case <-time.After(noticingCancel):
			err := errors.New("it takes no more input")
			s.setDead(err)
			s.kill(err)
			a = <-done
		}
	}
	var refused *jsonrpc.Error
	if errors.As(a.err, &refused) {
		refused.Message = s.set.o.Mask.Mask(refused.Message)
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.r.raw, nil
}

// end asks a server to end, and makes it.
func (s *server) end() {
	select {
	case <-s.ready:
	default:
		s.kill(errClosing) // still starting
		<-s.ready
	}
	if s.startErr == nil {
		s.setDead(errClosing)
		s.hangUp()
	}
}

// hangUp closes the connection and ends the process. It is safe to do twice.
func (s *server) hangUp() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if s.session != nil {
			_ = s.session.Close() // a server that ends badly has ended
		}
	}()
	s.stop()
	if !within(closed, endSession) {
		s.kill(errClosing)
		<-closed
	}
	s.kill(errClosing)
}

// stop ends the process: input closed, SIGTERM, SIGKILL, each with its time.
func (s *server) stop() {
	if s.proc == nil {
		return
	}
	_ = s.proc.CloseStdin() // may be closed already
	if within(s.proc.Done(), endByItself) {
		return
	}
	_ = s.proc.Signal(syscall.SIGTERM) // may have ended meanwhile
	if within(s.proc.Done(), endAfterTerm) {
		return
	}
	s.proc.Kill()
}

func within(done <-chan struct{}, bound time.Duration) bool {
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
