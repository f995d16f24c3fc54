package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// loginWorld is a world whose provider wants a ChatGPT login from tokens.
func loginWorld(t *testing.T, life time.Duration) (*world, *runnertest.Tokens) {
	t.Helper()
	w, tokens := newWorld(t), runnertest.NewTokens(t)
	w.write(t, w.home+"/config.toml", []byte(w.fill(`model = "gpt-5.5"
model_provider = "mock"
[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:{{port}}/v1"
wire_api = "responses"
requires_openai_auth = true
request_max_retries = 1
stream_max_retries = 1
`)), 0o600)
	w.write(t, w.home+"/auth.json", tokens.Login(life), 0o600)
	w.git(t, w.ws, "init", "-q", "-b", "main")
	w.git(t, w.ws, "commit", "-q", "--allow-empty", "-m", "start")
	return w, tokens
}

// nightshift runs the program in the workspace.
func (w *world) nightshift(t *testing.T, tokens *runnertest.Tokens, stdin string, env []string, args ...string) result {
	t.Helper()
	p := process{args: args, dir: w.ws, env: append(w.env(), env...), timeout: time.Minute}
	if tokens != nil {
		p.env = append(p.env, "CODEX_REFRESH_TOKEN_URL_OVERRIDE="+tokens.URL)
	}
	if stdin != "" {
		p.stdin = strings.NewReader(stdin)
	}
	return p.run(t)
}

func (w *world) play(t *testing.T, script string) {
	t.Helper()
	if err := w.server.Load([]byte(script)); err != nil {
		t.Fatal(err)
	}
}

const sayHello = `{"model_script":[{"items":[{"message":"hello"}]}]}`

// TestAuthCommands is a day of a login: seeded, looked at, refreshed, used up.
func TestAuthCommands(t *testing.T) {
	w, tokens := loginWorld(t, time.Hour)
	seed := string(tokens.Login(time.Hour))
	if err := os.Remove(w.home + "/auth.json"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args   []string
		stdin  string
		before func()
		code   int
		out    string // part of stdout
		err    string // part of stderr
	}{
		{args: []string{"auth", "status"}, code: 5, out: "exit code 5", err: "nightshift auth import"},
		{args: []string{"auth", "import"}, stdin: "rubbish", code: 5, err: "not valid JSON"},
		{args: []string{"auth", "import"}, stdin: seed, out: "imported"},
		{args: []string{"auth", "import"}, stdin: strings.Replace(seed, "x_note", "y_note", 1), out: "kept"},
		{args: []string{"auth", "status"}, out: "not due"},
		{args: []string{"auth", "status", "--json"}, out: `"ok":true`},
		{args: []string{"auth", "refresh", "--if-due"}, out: "not due"},
		{args: []string{"auth", "refresh", "--json"}, out: `"refreshed":true`},
		{args: []string{"auth", "refresh", "--auth-writeback", "cat > " + w.base + "/outside"}, out: "the write-back took it"},
		{args: []string{"auth", "refresh", "--auth-writeback", "exit 3"}, code: 5, err: "code 3"},
		{args: []string{"auth", "status"}, before: func() { w.chmod(t, 0o644) }, out: "mode 0644"},
		{args: []string{"auth", "status", "--fix"}, out: "mode 0600", err: "0600 now"},
		{args: []string{"auth", "status", "-c", `forced_login_method="api"`}, code: 5, err: "forced_login_method"},
		{args: []string{"auth", "refresh"}, before: func() {
			tokens.Then(runnertest.TokenAnswer{Status: 401, Body: `{"error":{"code":"refresh_token_reused"}}`})
		}, code: 5, err: "auth import --force"},
		{args: []string{"auth", "import", "--force"}, stdin: string(tokens.Login(time.Hour)), out: "replaced"},
		{args: []string{"auth", "refresh", "--nonsense"}, code: 2},
	} {
		if step.before != nil {
			step.before()
		}
		r := w.nightshift(t, tokens, step.stdin, nil, step.args...)
		if r.code != step.code || !strings.Contains(string(r.stdout), step.out) || !strings.Contains(string(r.stderr), step.err) {
			t.Errorf("%q: exit %d, want %d\nstdout: %s\nstderr: %s", step.args, r.code, step.code, r.stdout, r.stderr)
		}
		for _, secret := range []string{"rt-test", "eyJ"} {
			if strings.Contains(string(r.stdout)+string(r.stderr), secret) {
				t.Errorf("%q tells %q", step.args, secret)
			}
		}
	}
	if n := tokens.Refreshes(); n != 3 {
		t.Errorf("%d refreshes", n)
	}
	stored, err := os.ReadFile(w.base + "/outside")
	if err != nil || !bytes.Contains(stored, []byte("x_note")) {
		t.Errorf("the write-back got %q (%v)", stored, err)
	}
}

func (w *world) chmod(t *testing.T, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(w.home+"/auth.json", mode); err != nil {
		t.Fatal(err)
	}
}

// TestNeverAnonymous: every way of having no good login ends with exit code 5
// and without a request to the model.
func TestNeverAnonymous(t *testing.T) {
	for name, set := range map[string]func(w *world, tokens *runnertest.Tokens) (env []string){
		"missing": func(w *world, _ *runnertest.Tokens) []string { return mustRemove(t, w) },
		"corrupt": func(w *world, _ *runnertest.Tokens) []string {
			w.write(t, w.home+"/auth.json", []byte("{"), 0o600)
			return nil
		},
		"empty": func(w *world, _ *runnertest.Tokens) []string { w.write(t, w.home+"/auth.json", nil, 0o600); return nil },
		"unknown mode": func(w *world, _ *runnertest.Tokens) []string {
			w.write(t, w.home+"/auth.json", []byte(`{"auth_mode":"magic"}`), 0o600)
			return nil
		},
		"bad access token": func(*world, *runnertest.Tokens) []string { return []string{"CODEX_ACCESS_TOKEN=nonsense"} },
		"refresh refused": func(_ *world, tokens *runnertest.Tokens) []string {
			tokens.Always(runnertest.TokenAnswer{Status: 401, Body: `{"error":{"code":"refresh_token_expired"}}`})
			return nil
		},
		"refresh empty": func(_ *world, tokens *runnertest.Tokens) []string {
			tokens.Always(runnertest.TokenAnswer{Status: 200, Body: "{}"})
			return nil
		},
		"refresh HTML": func(_ *world, tokens *runnertest.Tokens) []string {
			tokens.Always(runnertest.TokenAnswer{Status: 200, Body: "<html>"})
			return nil
		},
		"refresh down": func(_ *world, tokens *runnertest.Tokens) []string { tokens.Close(); return nil },
		"forbidden": func(w *world, _ *runnertest.Tokens) []string {
			w.write(t, w.system+"/requirements.toml", []byte("allowed_login_methods = [\"api\"]\n"), 0o644)
			return nil
		},
		"forbidden workspace": func(w *world, _ *runnertest.Tokens) []string {
			w.write(t, w.system+"/requirements.toml", []byte("allowed_chatgpt_workspaces = [\"another\"]\n"), 0o644)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, tokens := loginWorld(t, -time.Hour)
			env := set(w, tokens)
			before, _ := os.ReadFile(w.home + "/auth.json")
			w.play(t, sayHello)
			r := w.nightshift(t, tokens, "", env, "exec", "--json", "-s", "read-only", "Say hello.")
			if r.code != 5 {
				t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			if n := len(w.server.Requests()); n != 0 {
				t.Errorf("%d requests to the model", n)
			}
			if n := len(tokens.Requests()); n > 3 {
				t.Errorf("%d requests to the token endpoint", n)
			}
			if !bytes.Contains(r.stdout, []byte(`"turn.failed"`)) || !bytes.Contains(r.stderr, []byte("hint:")) {
				t.Errorf("stdout %s\nstderr %s", r.stdout, r.stderr)
			}
			if after, _ := os.ReadFile(w.home + "/auth.json"); !bytes.Equal(before, after) {
				t.Error("auth.json changed")
			}
		})
	}
}

func mustRemove(t *testing.T, w *world) []string {
	t.Helper()
	if err := os.Remove(w.home + "/auth.json"); err != nil {
		t.Fatal(err)
	}
	return nil
}

// TestSignalKeepsTheAnswer: a job is ended while the answer to a refresh is on
// its way. The run ends in time, and the new login is on disk.
func TestSignalKeepsTheAnswer(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		w, tokens := loginWorld(t, -time.Hour)
		tokens.Delay(1500 * time.Millisecond)
		w.play(t, sayHello)
		p := process{
			args: []string{"exec", "--json", "-s", "read-only", "Say hello."}, dir: w.ws, timeout: time.Minute,
			env: append(w.env(), "CODEX_REFRESH_TOKEN_URL_OVERRIDE="+tokens.URL),
			send: func(ctx context.Context, proc *os.Process) {
				for len(tokens.Requests()) == 0 && ctx.Err() == nil {
					time.Sleep(5 * time.Millisecond)
				}
				_ = proc.Signal(sig) // gone already: the exit code tells
			},
		}
		if r := p.run(t); r.code != 128+int(sig) {
			t.Errorf("%s: exit %d\n%s%s", sig, r.code, r.stdout, r.stderr)
		}
		var file struct {
			Tokens struct {
				Refresh string `json:"refresh_token"`
			}
		}
		text, err := os.ReadFile(w.home + "/auth.json")
		if err == nil {
			err = json.Unmarshal(text, &file)
		}
		if err != nil || file.Tokens.Refresh != tokens.Refresh() || tokens.Refreshes() != 1 {
			t.Errorf("%s: auth.json has %q, the endpoint wants %q (%v)", sig, file.Tokens.Refresh, tokens.Refresh(), err)
		}
	}
}

// TestExecWriteback: a job on a machine that is thrown away. The store outside
// gets the login; if it cannot, a good run still ends with exit code 5.
func TestExecWriteback(t *testing.T) {
	for _, tc := range []struct {
		name, command string
		code          int
	}{
		{"stored", "cat > {{base}}/outside", 0},
		{"stored at the second try", "test -e {{base}}/tried && cat > {{base}}/outside; e=$?; touch {{base}}/tried; exit $e", 0},
		{"never stored", "cat > /dev/null; exit 1", 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, tokens := loginWorld(t, -time.Hour)
			w.play(t, sayHello)
			r := w.nightshift(t, tokens, "", nil, "exec", "--json", "-s", "read-only", "--events", w.base+"/events", "--auth-writeback", w.fill(tc.command), "Say hello.")
			if r.code != tc.code || !bytes.Contains(r.stdout, []byte("hello")) {
				t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			mine, err := os.ReadFile(w.home + "/auth.json")
			if err != nil || !bytes.Contains(mine, []byte(tokens.Refresh())) {
				t.Errorf("auth.json does not have the new login (%v)", err)
			}
			outside, err := os.ReadFile(w.base + "/outside")
			if tc.code == 0 && !bytes.Equal(mine, outside) {
				t.Errorf("the store outside has %q (%v)", outside, err)
			}
			events, err := os.ReadFile(w.base + "/events")
			if err != nil || !bytes.Contains(events, []byte(`"persisted":"rename"`)) || !bytes.Contains(events, []byte(`"auth.selected"`)) {
				t.Errorf("events: %s (%v)", events, err)
			}
		})
	}
}

// TestExecTogether: jobs that start at once on one login share one refresh.
func TestExecTogether(t *testing.T) {
	const n = 6
	w, tokens := loginWorld(t, -time.Hour)
	tokens.Delay(200 * time.Millisecond)
	w.play(t, `{"model_script":[`+strings.TrimSuffix(strings.Repeat(`{"items":[{"message":"hello"}]},`, n), ",")+`]}`)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			p := process{args: []string{"exec", "--json", "-s", "read-only", "Say hello."}, dir: w.ws, timeout: time.Minute,
				env: append(w.env(), "CODEX_REFRESH_TOKEN_URL_OVERRIDE="+tokens.URL)}
			if r := p.run(t); r.code != 0 {
				t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
	all.Wait()
	if r, q := tokens.Refreshes(), len(tokens.Requests()); r != 1 || q != 1 {
		t.Errorf("%d refreshes, %d requests", r, q)
	}
}

// TestNoTokenAnywhere runs whole sessions whose commands look for the credential
// in every place they can reach, and which print it where it was planted. Then
// every file, stream and request is searched for it in many forms.
func TestNoTokenAnywhere(t *testing.T) {
	for _, kind := range []string{"login", "key in the environment", "key on stdin"} {
		t.Run(kind, func(t *testing.T) {
			w, tokens := loginWorld(t, -time.Hour)
			key, stdin := "sk-canary-5f2d9c71e8aa4b36", ""
			args := []string{"exec", "--json", "-s", "workspace-write", "--events", w.base + "/events.jsonl", "--report-dir", w.base + "/reports", "-o", w.base + "/last"}
			var env []string
			switch kind {
			case "login":
				key = accessOf(t, w) // the one that has run out; the fresh one is added below
			case "key in the environment":
				env = []string{"CODEX_API_KEY=" + key}
			default:
				args, stdin = append(args, "--api-key-stdin"), key+"\n"
			}
			w.write(t, w.ws+"/planted", []byte(key), 0o644)
			w.write(t, w.ws+"/.git/info/exclude", []byte("planted\n"), 0o644)
			w.play(t, w.fill(`{"model_script":[
				{"items":[{"call":"exec_command","args":{"cmd":"env; cat {{home}}/auth.json \"$CODEX_HOME/auth.json\" ~/.codex/auth.json; for p in /proc/[0-9]* /proc/self /proc/$PPID; do tr '\\0' '\\n' < $p/environ; tr '\\0' ' ' < $p/cmdline; done; true"}}]},
				{"items":[{"call":"exec_command","args":{"cmd":"cat planted; echo; base64 -w0 planted; echo; base64 planted; od -An -v -tx1 planted | tr ' ' '%' | tr -d '\\n'; echo; head -c 9 planted; sleep 0.2; tail -c +10 planted; echo; printf '\"%s\"' \"$(cat planted)\" >&2; cp planted copied-name-$(head -c 12 planted | tr -d / ); true"}}]},
				{"items":[{"message":"The key is `+key+`."}]}]}`))
			r := w.nightshift(t, tokens, stdin, env, append(args, "Look around.")...)
			if r.code != 0 {
				t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			secrets := []string{key}
			if kind == "login" {
				secrets = append(secrets, accessOf(t, w), tokens.Refresh(), "rt-test-0", runnertest.IDToken("acct-test-0001"))
			}
			// The third request holds what the model itself had printed out of the
			// workspace; the first two must hold nothing.
			for _, req := range w.server.ModelRequests()[:2] {
				req.Header.Del("Authorization")
				searchFor(t, secrets, "a request to the model", append(req.Body, []byte(fmt.Sprint(req.Header))...))
			}
			searchFor(t, secrets, "stdout", r.stdout)
			searchFor(t, secrets, "stderr", r.stderr)
			err := filepath.WalkDir(w.base, func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() || filepath.Base(path) == "auth.json" || filepath.Dir(path) == w.ws {
					return err
				}
				text, err := os.ReadFile(path)
				searchFor(t, secrets, path, text)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func accessOf(t *testing.T, w *world) string {
	t.Helper()
	var file struct {
		Tokens struct {
			Access string `json:"access_token"`
		}
	}
	text, err := os.ReadFile(w.home + "/auth.json")
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Tokens.Access
}

// searchFor looks for secrets in text: plain, URL-encoded in full and as usual,
// hexadecimal, base64 at each of the three alignments, JSON-escaped, and with
// line breaks in it.
func searchFor(t *testing.T, secrets []string, where string, text []byte) {
	t.Helper()
	flat := strings.NewReplacer("\n", "", `\n`, "", "\r", "", `\r`, "", " ", "").Replace(string(text))
	for _, s := range secrets {
		forms := map[string]string{"plain": s, "URL": url.QueryEscape(s), "hex": fmt.Sprintf("%x", s)}
		var percent, escaped strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&percent, "%%%02x", c)
			fmt.Fprintf(&escaped, `\u%04x`, c)
		}
		forms["percent"], forms["escaped"] = percent.String(), escaped.String()
		for shift := range 3 {
			enc := base64.StdEncoding.EncodeToString(append(make([]byte, shift), s...))
			from, to := (shift*8+5)/6, len(strings.TrimRight(enc, "="))-1
			forms[fmt.Sprint("base64 at ", shift)] = enc[from:to]
		}
		for name, form := range forms {
			for _, hay := range []string{string(text), flat} {
				if strings.Contains(strings.ToLower(hay), strings.ToLower(form)) {
					t.Errorf("%s holds a secret (%s)", where, name)
					break
				}
			}
		}
	}
}
