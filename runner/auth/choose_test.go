package auth

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

var (
	openAI   = Provider{Name: "openai", BuiltIn: true, RequiresOpenAIAuth: true}
	withAuth = Provider{Name: "mock", RequiresOpenAIAuth: true, BaseURL: "http://127.0.0.1:1/v1"}
	withKey  = Provider{Name: "mock", EnvKey: "MOCK_KEY", BaseURL: "http://127.0.0.1:1/v1"}
	keyless  = Provider{Name: "proxy", BaseURL: "http://127.0.0.1:1/v1"}
)

const (
	apiKeyFile = `{"OPENAI_API_KEY":"sk-file"}`
	farFuture  = 4102444800
)

// chatgptFile is a login that needs no refresh.
func chatgptFile(account string) string {
	return `{"auth_mode":"chatgpt","tokens":{"id_token":"` + runnertest.IDToken(account) +
		`","access_token":"` + runnertest.JWT(map[string]any{"exp": farFuture, "n": 1}) +
		`","refresh_token":"rt","account_id":"` + account + `"},"last_refresh":"2026-01-02T03:04:05Z"}`
}

// TestPrecedence is the table of sources: who wins, who is named as passed over,
// and what ends the run.
func TestPrecedence(t *testing.T) {
	accessJWT := runnertest.JWT(map[string]any{"exp": farFuture, "https://api.openai.com/auth": map[string]any{"chatgpt_account_id": "acct-jwt"}})
	for _, tc := range []struct {
		name     string
		provider Provider
		env      map[string]string
		stdin    string
		file     string
		bearer   string // what the request carries
		source   string
		mode     string
		ignored  []string
		notices  []string
		class    string
	}{
		{name: "API key", provider: openAI, env: map[string]string{"CODEX_API_KEY": " sk-env\n"}, bearer: "sk-env", source: "env CODEX_API_KEY", mode: "apikey"},
		{name: "API key for a provider with OpenAI auth", provider: withAuth, env: map[string]string{"CODEX_API_KEY": "sk-env"}, bearer: "sk-env", source: "env CODEX_API_KEY", mode: "apikey"},
		{name: "API key before the file", provider: openAI, env: map[string]string{"CODEX_API_KEY": "sk-env"}, file: apiKeyFile, bearer: "sk-env", source: "env CODEX_API_KEY", mode: "apikey", ignored: []string{"auth.json"}, notices: []string{"auth_ignored"}},
		{name: "API key before a corrupt file", provider: openAI, env: map[string]string{"CODEX_API_KEY": "sk-env"}, file: "{", bearer: "sk-env", source: "env CODEX_API_KEY", mode: "apikey", ignored: []string{"auth.json"}, notices: []string{"auth_ignored"}},
		{name: "stdin before all", provider: openAI, env: map[string]string{"CODEX_API_KEY": "sk-env"}, stdin: "sk-stdin", file: apiKeyFile, bearer: "sk-stdin", source: "--api-key-stdin", mode: "apikey", ignored: []string{"env CODEX_API_KEY", "auth.json"}, notices: []string{"auth_ignored", "auth_ignored"}},
		{name: "stdin before the provider's variable", provider: withKey, env: map[string]string{"MOCK_KEY": "k"}, stdin: "sk-stdin", bearer: "sk-stdin", source: "--api-key-stdin", mode: "apikey", ignored: []string{"env MOCK_KEY"}, notices: []string{"auth_ignored"}},
		{name: "stdin for a provider without a key", provider: keyless, stdin: "sk-stdin", bearer: "sk-stdin", source: "--api-key-stdin", mode: "apikey"},
		{name: "blank API key counts as none", provider: openAI, env: map[string]string{"CODEX_API_KEY": "  "}, file: apiKeyFile, bearer: "sk-file", source: "auth.json", mode: "apikey"},
		{name: "file with a key", provider: openAI, file: apiKeyFile, bearer: "sk-file", source: "auth.json", mode: "apikey"},
		{name: "file with a key and tokens", provider: openAI, file: strings.Replace(chatgptFile("a"), `{"auth_mode":"chatgpt"`, `{"OPENAI_API_KEY":"sk-both"`, 1), bearer: "sk-both", source: "auth.json", mode: "apikey", ignored: []string{"the ChatGPT tokens of auth.json"}},
		{name: "file with tokens and a key", provider: openAI, file: strings.Replace(chatgptFile("a"), `{`, `{"OPENAI_API_KEY":"sk-both",`, 1), source: "auth.json", mode: "chatgpt", bearer: "eyJ", ignored: []string{"the OPENAI_API_KEY of auth.json"}},
		{name: "login", provider: openAI, file: chatgptFile("acct"), source: "auth.json", mode: "chatgpt", bearer: "eyJ"},
		{name: "login without auth_mode", provider: openAI, file: strings.Replace(chatgptFile("acct"), `"auth_mode":"chatgpt",`, "", 1), source: "auth.json", mode: "chatgpt", bearer: "eyJ"},
		{name: "external tokens", provider: openAI, file: strings.Replace(chatgptFile("acct"), `"chatgpt"`, `"chatgptAuthTokens"`, 1), source: "auth.json", mode: "chatgpt", bearer: "eyJ"},
		{name: "access token before the file", provider: openAI, env: map[string]string{"CODEX_ACCESS_TOKEN": accessJWT}, file: apiKeyFile, source: "env CODEX_ACCESS_TOKEN", mode: "token", bearer: "eyJ", ignored: []string{"auth.json"}, notices: []string{"auth_ignored"}},
		{name: "API key before the access token", provider: openAI, env: map[string]string{"CODEX_ACCESS_TOKEN": "at-x", "CODEX_API_KEY": "sk-env"}, bearer: "sk-env", source: "env CODEX_API_KEY", mode: "apikey", ignored: []string{"env CODEX_ACCESS_TOKEN"}, notices: []string{"auth_ignored"}},
		{name: "bad access token: the file is not tried", provider: openAI, env: map[string]string{"CODEX_ACCESS_TOKEN": "nonsense"}, file: apiKeyFile, class: ClassUnsupported},
		{name: "access token without an account", provider: openAI, env: map[string]string{"CODEX_ACCESS_TOKEN": runnertest.JWT(map[string]any{"exp": farFuture})}, class: ClassUnsupported},
		{name: "OPENAI_API_KEY is the last resort", provider: openAI, env: map[string]string{"OPENAI_API_KEY": "sk-last"}, bearer: "sk-last", source: "env OPENAI_API_KEY", mode: "apikey", notices: []string{"auth_fallback"}},
		{name: "OPENAI_API_KEY after the file", provider: openAI, env: map[string]string{"OPENAI_API_KEY": "sk-last"}, file: apiKeyFile, bearer: "sk-file", source: "auth.json", mode: "apikey", ignored: []string{"env OPENAI_API_KEY"}},
		{name: "OPENAI_API_KEY does not mend a corrupt file", provider: openAI, env: map[string]string{"OPENAI_API_KEY": "sk-last"}, file: "{", class: ClassCorrupt},
		{name: "OPENAI_API_KEY is not for others", provider: keyless, env: map[string]string{"OPENAI_API_KEY": "sk-last"}, source: "none", mode: "none"},
		{name: "OPENAI_API_KEY named by a provider", provider: Provider{Name: "m", EnvKey: "OPENAI_API_KEY"}, env: map[string]string{"OPENAI_API_KEY": "sk-x"}, bearer: "sk-x", source: "env OPENAI_API_KEY", mode: "apikey"},
		{name: "the provider's variable", provider: withKey, env: map[string]string{"MOCK_KEY": "k-1"}, bearer: "k-1", source: "env MOCK_KEY", mode: "apikey"},
		{name: "the provider's variable before CODEX_API_KEY", provider: withKey, env: map[string]string{"MOCK_KEY": "k-1", "CODEX_API_KEY": "sk"}, file: apiKeyFile, bearer: "k-1", source: "env MOCK_KEY", mode: "apikey", ignored: []string{"env CODEX_API_KEY"}, notices: []string{"auth_ignored"}},
		{name: "the provider's variable is missing", provider: withKey, env: map[string]string{"CODEX_API_KEY": "sk"}, file: apiKeyFile, class: ClassMissing},
		{name: "the provider's variable is empty", provider: withKey, env: map[string]string{"MOCK_KEY": ""}, class: ClassMissing},
		{name: "bearer token in the configuration", provider: Provider{Name: "m", BearerToken: "b-1"}, bearer: "b-1", source: "experimental_bearer_token", mode: "apikey"},
		{name: "no key named", provider: keyless, file: apiKeyFile, source: "none", mode: "none"},
		{name: "nothing", provider: openAI, class: ClassMissing},
		{name: "no provider", provider: Provider{}, env: map[string]string{"OPENAI_API_KEY": "sk"}, class: ClassMissing},
		{name: "key with a space", provider: openAI, env: map[string]string{"CODEX_API_KEY": "sk one"}, class: ClassCorrupt},
		{name: "key with a line break", provider: withKey, env: map[string]string{"MOCK_KEY": "a\nb"}, class: ClassCorrupt},
		{name: "key in quotes", provider: openAI, env: map[string]string{"CODEX_API_KEY": `"sk-env"`}, class: ClassCorrupt},
		{name: "token in quotes", provider: openAI, env: map[string]string{"CODEX_ACCESS_TOKEN": "'at-env'"}, class: ClassCorrupt},
		{name: "key with a quote in it", provider: openAI, env: map[string]string{"CODEX_API_KEY": `"sk-env`}, bearer: `"sk-env`, source: "env CODEX_API_KEY", mode: "apikey"},
		{name: "key of a foreign script", provider: openAI, env: map[string]string{"CODEX_API_KEY": "sk-é"}, class: ClassCorrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Sources{Home: t.TempDir(), Provider: tc.provider, LookupEnv: environment(tc.env), APIKeyStdin: tc.stdin}
			if tc.file != "" {
				if err := os.WriteFile(filepath.Join(s.Home, fileName), []byte(tc.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Load(context.Background(), s)
			if got := classOf(t, err); got != tc.class {
				t.Fatalf("%q %v, want %q", got, err, tc.class)
			}
			if err != nil {
				if err.(*Error).Hint() == "" {
					t.Error("no hint")
				}
				return
			}
			header, err := authorize(c)
			if err != nil {
				t.Fatal(err)
			}
			if tc.bearer == "" && header != "" || tc.bearer != "" && !strings.HasPrefix(header, "Bearer "+tc.bearer) {
				t.Errorf("header %q", header)
			}
			sum := c.Summary()
			if sum.Source != tc.source || sum.Mode != tc.mode || !slices.Equal(sum.Ignored, tc.ignored) {
				t.Errorf("%+v", sum)
			}
			var notices []string
			for _, n := range c.Notices() {
				notices = append(notices, n.Class)
			}
			if !slices.Equal(notices, tc.notices) {
				t.Errorf("notices %q", c.Notices())
			}
			for _, v := range tc.env {
				if v = strings.TrimSpace(v); v != "" && !slices.Contains(c.Secrets(), v) {
					t.Errorf("%q is not masked", v)
				}
			}
		})
	}
}

// TestCorruptFiles are files that other programs take for no login at all, and
// go on without one. Here each ends the run before any request.
func TestCorruptFiles(t *testing.T) {
	good := chatgptFile("acct")
	id := runnertest.IDToken("acct")
	for name, text := range map[string]string{
		"empty":                     "",
		"blank":                     " \n",
		"not JSON":                  "sk-raw-key",
		"half":                      good[:len(good)/2],
		"text after it":             good + "x",
		"two of them":               good + good,
		"array":                     "[]",
		"null":                      "null",
		"no credential":             "{}",
		"unknown auth_mode":         strings.Replace(good, `"chatgpt"`, `"ChatGPT"`, 1),
		"empty auth_mode with key":  `{"auth_mode":"x","OPENAI_API_KEY":"sk"}`,
		"apikey without a key":      `{"auth_mode":"apikey","OPENAI_API_KEY":null}`,
		"key is a number":           `{"OPENAI_API_KEY":1}`,
		"tokens are text":           `{"auth_mode":"chatgpt","tokens":"x"}`,
		"no id_token":               strings.Replace(good, `"id_token"`, `"x"`, 1),
		"id_token is no JWT":        strings.Replace(good, id, "abc", 1),
		"no access_token":           strings.Replace(good, `"access_token"`, `"x"`, 1),
		"no last_refresh":           strings.Replace(good, `"last_refresh"`, `"x"`, 1),
		"last_refresh is no time":   strings.Replace(good, "2026-01-02T03:04:05Z", "yesterday", 1),
		"other case of a key":       strings.Replace(good, `"tokens"`, `"Tokens"`, 1),
		"key twice":                 strings.Replace(good, `{`, `{"last_refresh":"2020-01-01T00:00:00Z",`, 1),
		"byte order mark":           "\xef\xbb\xbf" + good,
		"line break in the token":   strings.Replace(good, `"access_token":"`, `"access_token":"\n`, 1),
		"account with a line break": strings.Replace(good, `"account_id":"`, `"account_id":"\r\nX: 1`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, time.Hour)
			r.write([]byte(text))
			_, err := Load(context.Background(), r.src)
			if classOf(t, err) != ClassCorrupt {
				t.Fatalf("%v", err)
			}
			if r.read() != text {
				t.Error("the file changed")
			}
			for _, secret := range []string{"sk-raw-key", id, "eyJ"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("quotes the file: %v", err)
				}
			}
		})
	}
	r := newRig(t, time.Hour)
	r.write([]byte(`{"auth_mode":"agentIdentity","agent_identity":"eyJ"}`))
	if _, err := Load(context.Background(), r.src); classOf(t, err) != ClassUnsupported {
		t.Error(err)
	}
	// The account may stand in the id token alone.
	r.write([]byte(strings.Replace(good, `"account_id"`, `"x"`, 1)))
	if c, err := Load(context.Background(), r.src); err != nil || c.account != "acct" {
		t.Error(err)
	}
}

// TestRestrictions: a login that is not allowed is refused and stays where it
// is.
func TestRestrictions(t *testing.T) {
	key := map[string]string{"CODEX_API_KEY": "sk-env"}
	for _, tc := range []struct {
		name     string
		provider Provider
		env      map[string]string
		file     string
		set      func(*Sources)
		class    string
	}{
		{"chatgpt wanted, key there", openAI, key, chatgptFile("a"), func(s *Sources) { s.ForcedLoginMethod = "chatgpt" }, ClassForbiddenLogin},
		{"chatgpt wanted, key in the file", openAI, nil, apiKeyFile, func(s *Sources) { s.ForcedLoginMethod = "chatgpt" }, ClassForbiddenLogin},
		{"chatgpt wanted and there", openAI, nil, chatgptFile("a"), func(s *Sources) { s.ForcedLoginMethod = "chatgpt" }, ""},
		{"key wanted, chatgpt there", openAI, nil, chatgptFile("a"), func(s *Sources) { s.ForcedLoginMethod = "api" }, ClassForbiddenLogin},
		{"key wanted and there", openAI, key, "", func(s *Sources) { s.ForcedLoginMethod = "api" }, ""},
		{"unknown method wanted", openAI, key, "", func(s *Sources) { s.ForcedLoginMethod = "chatgtp" }, ClassForbiddenLogin},
		{"a provider's key is a key", withKey, map[string]string{"MOCK_KEY": "k"}, "", func(s *Sources) { s.ForcedLoginMethod = "chatgpt" }, ClassForbiddenLogin},
		{"a proxy's key is a key", keyless, nil, "", func(s *Sources) { s.ForcedLoginMethod = "chatgpt" }, ClassForbiddenLogin},
		{"a proxy's key is allowed", keyless, nil, "", func(s *Sources) { s.AllowedMethods = []string{"api"} }, ""},
		{"workspace fits", openAI, nil, chatgptFile("a"), func(s *Sources) { s.ForcedWorkspaces = []string{"b", "a"} }, ""},
		{"other workspace", openAI, nil, chatgptFile("a"), func(s *Sources) { s.ForcedWorkspaces = []string{"b"} }, ClassForbiddenWorkspace},
		{"workspace wanted, key there", openAI, key, "", func(s *Sources) { s.ForcedWorkspaces = []string{"a"} }, ClassForbiddenWorkspace},
		{"the id token tells another workspace", openAI, nil, strings.Replace(chatgptFile("b"), `"account_id":"b"`, `"account_id":"a"`, 1), func(s *Sources) { s.ForcedWorkspaces = []string{"a"} }, ClassForbiddenWorkspace},
		{"requirement: methods", openAI, nil, chatgptFile("a"), func(s *Sources) { s.AllowedMethods = []string{"api"} }, ClassForbiddenLogin},
		{"requirement: no method at all", openAI, key, "", func(s *Sources) { s.AllowedMethods = []string{} }, ClassForbiddenLogin},
		{"requirement: workspaces", openAI, nil, chatgptFile("a"), func(s *Sources) { s.AllowedWorkspaces = []string{"a"} }, ""},
		{"the access token tells another workspace", openAI, nil, strings.Replace(chatgptFile("a"), runnertest.JWT(map[string]any{"exp": farFuture, "n": 1}), accessOf("b", ""), 1), func(s *Sources) { s.ForcedWorkspaces = []string{"a"} }, ClassForbiddenWorkspace},
		{"requirement: no workspace at all", openAI, nil, chatgptFile("a"), func(s *Sources) { s.AllowedWorkspaces = []string{} }, ClassForbiddenWorkspace},
		{"both lists must admit it", openAI, nil, chatgptFile("a"), func(s *Sources) { s.ForcedWorkspaces, s.AllowedWorkspaces = []string{"a"}, []string{"b"} }, ClassForbiddenWorkspace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Sources{Home: t.TempDir(), Provider: tc.provider, LookupEnv: environment(tc.env)}
			path := filepath.Join(s.Home, fileName)
			if tc.file != "" {
				if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tc.set(&s)
			c, err := Load(context.Background(), s)
			if got := classOf(t, err); got != tc.class {
				t.Fatalf("%q %v, want %q", got, err, tc.class)
			}
			if err == nil {
				if _, err := authorize(c); err != nil {
					t.Error(err)
				}
			}
			if b, err := os.ReadFile(path); tc.file != "" && (err != nil || string(b) != tc.file) {
				t.Errorf("auth.json was changed or deleted (%v)", err)
			}
		})
	}
}

// TestBaseURL shows where requests go with each kind of credential.
func TestBaseURL(t *testing.T) {
	for _, tc := range []struct {
		provider Provider
		file     string
		chatgpt  string
		want     string
	}{
		{openAI, apiKeyFile, "", "https://api.openai.com/v1"},
		{openAI, chatgptFile("a"), "", "https://chatgpt.com/backend-api/codex"},
		{openAI, chatgptFile("a"), "https://chat.example.com/backend-api/", "https://chat.example.com/backend-api/codex"},
		{openAI, chatgptFile("a"), "https://chat.example.com/backend-api/codex", "https://chat.example.com/backend-api/codex"},
		{Provider{BuiltIn: true, BaseURL: "https://api.openai.com/v1/"}, chatgptFile("a"), "", "https://chatgpt.com/backend-api/codex"},
		{Provider{BuiltIn: true, BaseURL: "https://eu.example.com/v1"}, chatgptFile("a"), "", "https://eu.example.com/v1"},
		{withAuth, chatgptFile("a"), "https://chat.example.com", "http://127.0.0.1:1/v1"},
		{keyless, "", "", "http://127.0.0.1:1/v1"},
	} {
		s := Sources{Home: t.TempDir(), Provider: tc.provider, ChatGPTBaseURL: tc.chatgpt}
		if tc.file != "" {
			if err := os.WriteFile(filepath.Join(s.Home, fileName), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := Load(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.BaseURL(); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc, got, tc.want)
		}
	}
}

// TestHeaders shows what goes with a key to the built-in provider, and with a
// login.
func TestHeaders(t *testing.T) {
	env := map[string]string{"CODEX_API_KEY": "sk", "OPENAI_ORGANIZATION": "org-1", "OPENAI_PROJECT": "proj-1"}
	headers := func(s Sources) http.Header {
		t.Helper()
		c, err := Load(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Authorize(req); err != nil {
			t.Fatal(err)
		}
		return req.Header
	}
	h := headers(Sources{Home: t.TempDir(), Provider: openAI, LookupEnv: environment(env)})
	if h.Get("OpenAI-Organization") != "org-1" || h.Get("OpenAI-Project") != "proj-1" || h.Get("ChatGPT-Account-ID") != "" {
		t.Error(h)
	}
	h = headers(Sources{Home: t.TempDir(), Provider: withAuth, LookupEnv: environment(env)})
	if h.Get("OpenAI-Organization") != "" {
		t.Error("the organization goes to another provider")
	}
	r := newRig(t, time.Hour)
	h = headers(r.src)
	if h.Get("ChatGPT-Account-ID") != "acct-test-0001" {
		t.Error(h)
	}
}
