package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/auth"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// authCmd groups what can be done with the login.
type authCmd struct {
	Status  authStatusCmd  `cmd:"" help:"Say which credential a run would use, and what would come of it. No network."`
	Refresh authRefreshCmd `cmd:"" help:"Refresh the ChatGPT login in auth.json now; for a maintenance job."`
	Import  authImportCmd  `cmd:"" help:"Seed auth.json from stdin, only if it is missing."`
}

// authFlags choose the provider and the restrictions, as exec's do.
type authFlags struct {
	Config       []string `name:"config" short:"c" sep:"none" placeholder:"KEY=VALUE" help:"Override a configuration value. Repeatable."`
	Profile      string   `short:"p" placeholder:"NAME" help:"Profile: NAME.config.toml in CODEX_HOME, or [profiles.NAME]."`
	Requirements []string `sep:"none" placeholder:"FILE" help:"One more requirements.toml. Repeatable."`
	Cd           string   `name:"cd" short:"C" placeholder:"DIR" help:"Working folder, for its project configuration."`
}

// session reads the configuration that a run with the same flags would have.
func (f *authFlags) session(rt *runtime, writeback string) (*session, error) {
	s := rt.session(&runFlags{Config: f.Config, Profile: f.Profile, Requirements: f.Requirements, Cd: f.Cd, AuthWriteback: writeback, Color: "auto"}, job{mode: "auth"})
	return s, s.openQuietly()
}

// authStatusCmd is "auth status".
type authStatusCmd struct {
	authFlags
	JSON bool `name:"json" help:"One JSON object on stdout."`
	Fix  bool `help:"Tighten the mode of auth.json to 0600 first."`
}

// Run prints the state of the credential; exit 5 when a run would have none.
func (c *authStatusCmd) Run(rt *runtime) error {
	s, err := c.session(rt, "")
	if err != nil {
		return err
	}
	if c.Fix {
		changed, err := auth.Tighten(s.home)
		if err != nil {
			return err
		}
		if changed {
			fmt.Fprintln(rt.stderr, "auth.json: the mode is 0600 now")
		}
	}
	st := auth.Inspect(rt.ctx, s.authSources(""))
	if c.JSON {
		err = writeJSONLine(rt.stdout, st)
	} else {
		_, err = io.WriteString(rt.stdout, statusText(st, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	if st.OK {
		return nil
	}
	return exitError{code: runner.ExitAuth, err: &hintError{errors.New(st.Problem.Message), st.Problem.Hint}}
}

// statusText is the status for people.
func statusText(st auth.Status, now time.Time) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("a run would", "%s", st.Would)
	line("provider", "%s", st.Provider)
	if st.Source != "" {
		kind := st.Mode
		if st.Account != "" {
			kind += ", account " + st.Account
		}
		if st.Plan != "" {
			kind += ", plan " + st.Plan
		}
		line("credential", "%s (%s)", st.Source, kind)
	}
	if f := st.File; f != nil {
		path := f.Path
		if f.Target != "" {
			path += " -> " + f.Target
		}
		line("file", "%s, mode %s, uid %d", path, f.Mode, f.UID)
		if f.Storing != "" {
			line("storing", "%s", f.Storing)
		}
	}
	if l := st.Login; l != nil {
		line("access token", "%s", moment(l.Expires, now, "ends", "ended", "opaque: its end is not known"))
		line("last refresh", "%s", moment(l.LastRefresh, now, "is to come", "was", "never"))
		line("refresh", "%s", refreshText(l))
	}
	for _, i := range st.Ignored {
		line("not used", "%s", i)
	}
	for _, n := range st.Notices {
		line("notice", "%s", n.Message)
		if n.Hint != "" {
			line("hint", "%s", n.Hint)
		}
	}
	return b.String()
}

func refreshText(l *auth.LoginStatus) string {
	switch {
	case !l.Refreshable:
		return "not possible: the login has no refresh token of its own"
	case l.Due:
		return "due (" + l.Reason + ")"
	}
	return "not due"
}

// moment says a time and how far it is.
func moment(t *time.Time, now time.Time, ahead, past, never string) string {
	if t == nil {
		return never
	}
	at := t.UTC().Format(time.RFC3339)
	if d := t.Sub(now).Round(time.Second); d > 0 {
		return fmt.Sprintf("%s %s (in %s)", ahead, at, d)
	}
	return fmt.Sprintf("%s %s (%s ago)", past, at, now.Sub(*t).Round(time.Second))
}

// authRefreshCmd is "auth refresh".
type authRefreshCmd struct {
	authFlags
	IfDue         bool   `help:"Only if a run would refresh now."`
	AuthWriteback string `placeholder:"CMD" help:"Run CMD with the new auth.json on stdin."`
	JSON          bool   `name:"json" help:"One JSON object on stdout."`
}

// refreshResult is what "auth refresh --json" prints.
type refreshResult struct {
	Refreshed bool                `json:"refreshed"`
	Due       bool                `json:"was_due"`
	Event     event.AuthRefreshed `json:"event"`
}

// refreshGrace is how long a refresh whose request is out may go on after a
// signal: an answer that is lost is a login that is lost.
const refreshGrace = 6 * time.Second

// writebackGrace is how long the last write-back may take when nobody is in a
// hurry.
const writebackGrace = time.Minute

// Run refreshes; exit 5 when that fails.
func (c *authRefreshCmd) Run(rt *runtime) error {
	s, err := c.session(rt, c.AuthWriteback)
	if err != nil {
		return err
	}
	src := s.authSources("")
	if src.HTTP == nil {
		src.HTTP = &http.Client{Transport: &http.Transport{Proxy: rt.proxy()}}
	}
	var out refreshResult
	src.Emit = func(e event.Event) {
		switch e := e.(type) {
		case event.AuthRefreshed:
			out.Event = e
		case event.Notice:
			fmt.Fprintf(rt.stderr, "notice: %s\n", e.Message)
		}
	}
	cred, err := auth.Load(rt.ctx, src)
	if err != nil {
		return err
	}
	for _, n := range cred.Notices() {
		fmt.Fprintf(rt.stderr, "notice: %s\n", n.Message)
	}
	_, out.Due = cred.Due()
	if !c.IfDue || out.Due {
		err = cred.Refresh(rt.ctx)
		out.Refreshed = err == nil
	}
	grace := writebackGrace
	if rt.ctx.Err() != nil {
		grace = refreshGrace
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(rt.ctx), grace)
	defer cancel()
	if err := errors.Join(err, cred.Close(ctx)); err != nil {
		return err
	}
	return c.say(rt, out)
}

func (c *authRefreshCmd) say(rt *runtime, out refreshResult) error {
	if c.JSON {
		return writeJSONLine(rt.stdout, out)
	}
	text := "not due; nothing was refreshed"
	if out.Refreshed {
		text = fmt.Sprintf("refreshed and stored in %s (%s)", out.Event.Path, out.Event.Persisted)
		if out.Event.Writeback == "ok" {
			text += "; the write-back took it"
		}
	}
	_, err := fmt.Fprintln(rt.stdout, text)
	return err
}

// authImportCmd is "auth import".
type authImportCmd struct {
	Force   bool          `help:"Replace an auth.json that is there."`
	Timeout time.Duration `default:"30s" help:"How long to wait for stdin."`
}

// Run seeds auth.json.
func (c *authImportCmd) Run(rt *runtime) error {
	if isTerminal(rt.stdin) {
		return usageError("auth import reads auth.json from stdin; pipe it, or use `< auth.json`")
	}
	home, err := c.home(rt)
	if err != nil {
		return err
	}
	text, err := readBounded(rt.ctx, rt.stdin, maxSeed, c.Timeout)
	if err != nil {
		return usageError("auth import: stdin: %v", err)
	}
	did, err := auth.Import(rt.ctx, home, text, c.Force)
	if err != nil {
		return err
	}
	said := map[string]string{
		auth.Imported:  "auth.json was imported",
		auth.Replaced:  "auth.json was replaced",
		auth.Kept:      "there is an auth.json already; it was kept (--force replaces it)",
		auth.Unchanged: "auth.json is the same already",
	}
	_, err = fmt.Fprintf(rt.stdout, "%s: %s\n", home, said[did])
	return err
}

// home makes the folder that CODEX_HOME names: seeding is what comes first on a
// new machine.
func (c *authImportCmd) home(rt *runtime) (string, error) {
	if dir := rt.getenv("CODEX_HOME"); dir != "" {
		if err := os.MkdirAll(rt.abs(dir), 0o700); err != nil {
			return "", usageError("CODEX_HOME %s cannot be made: %v", dir, errText(err))
		}
	}
	return rt.codexHome()
}

// maxSeed bounds a login on stdin, in bytes.
const maxSeed = 1 << 20

// readBounded reads r to its end, but neither too much nor for too long. After
// the time is up the reading goroutine ends with the process or the pipe.
func readBounded(ctx context.Context, r io.Reader, limit int64, wait time.Duration) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(r, limit+1))
		done <- result{text, err}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case res := <-done:
		if res.err == nil && int64(len(res.text)) > limit {
			return nil, fmt.Errorf("more than %d bytes, too long for a login", limit)
		}
		return res.text, res.err
	case <-timer.C:
		return nil, fmt.Errorf("open but silent for %s", wait)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
