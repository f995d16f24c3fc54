// Package auth finds the credential of a run, keeps it fresh and loses no login.
//
// [Load] chooses among the sources (see [Sources] and choose.go for the order),
// or fails: a run without a usable credential ends before its first request,
// and no request ever goes out anonymously unless the provider names no key at
// all. The [Credential] puts itself on requests, refreshes a ChatGPT login when
// it is due or was refused, and says everything it did as events.
//
// # What is promised about a refresh
//
// The new bundle is on disk before its token is used. Whether it can be stored
// is tried, and the space is taken, before the refresh token is spent. A kill
// at any instant leaves the old or the new bundle for the next start; unknown
// fields, key order, mode and owner of auth.json stay as they are. One process
// of a machine refreshes at a time, under a lock; the others read its result.
// One refresh token is sent once, and again only after a failure that left it
// unspent as far as one can know: at most three requests, then a pause.
// Every wait has a bound.
//
// What no client can promise: if the machine dies after the service has
// replaced the refresh token and before the answer has arrived, the login is
// gone. It can be seeded again.
//
// # Secrets
//
// Keys and tokens are [Secret] values: no way of printing shows them. Errors,
// events and files beside auth.json hold digests at most.
//
// The key stays in this process, and leaves it in the Authorization header only.
// Setups that put a proxy beside the agent, which alone knows the key, guard
// against an agent whose commands read the environment, files or memory of
// their parent. Here the sandbox does that: a command has no key in its
// environment, cannot read CODEX_HOME, sees no process but its own tree, and
// this process is not dumpable. Against that attacker nothing is gained by a
// second process. Where commands run without a sandbox (danger-full-access) or
// as root beside it, neither way helps.
//
// # Concurrency
//
// All methods of a Credential may be called from any goroutine. A refresh runs
// in one goroutine of its own; callers wait for it together and may leave when
// their context ends, while an answer that is on its way is still stored.
// [Credential.Close] joins it.
package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Provider is what this package needs to know of the model provider in force.
type Provider struct {
	Name               string
	BaseURL            string
	EnvKey             string
	EnvKeyInstructions string
	BearerToken        string // experimental_bearer_token
	RequiresOpenAIAuth bool
	BuiltIn            bool
}

// Format hides the bearer token.
func (p Provider) Format(f fmt.State, _ rune) {
	// A formatter cannot report an error; the state never returns one.
	_, _ = io.WriteString(f, "auth.Provider{"+p.Name+"}")
}

// Writeback hands a new auth.json to a store outside this machine. The bundle
// must not be kept after the call, and the call must end with its context.
type Writeback func(ctx context.Context, bundle []byte) error

// Sources is everything a credential is chosen from. The zero value of a field
// means that the source is not there.
type Sources struct {
	Home      string // CODEX_HOME, the folder of auth.json; absolute
	Provider  Provider
	LookupEnv func(string) (string, bool)
	// APIKeyStdin is the key read for --api-key-stdin; empty without the flag.
	APIKeyStdin string

	ForcedLoginMethod string // chatgpt, api, ""
	ForcedWorkspaces  []string
	AllowedMethods    []string // nil: all
	AllowedWorkspaces []string // nil: all

	// Writeback, if set, gets every new bundle.
	Writeback Writeback
	// ReadOnlyOK: refresh even where the result cannot be stored. The new login
	// then lives in Writeback, or only in this process.
	ReadOnlyOK bool
	// RescueDir, if set, is a folder on another disk than Home, like /tmp, under
	// which a private folder takes a new bundle when nothing else could.
	RescueDir string
	// RefreshURL replaces the token endpoint (CODEX_REFRESH_TOKEN_URL_OVERRIDE).
	RefreshURL string
	// ChatGPTBaseURL is chatgpt_base_url; empty: the public one.
	ChatGPTBaseURL string

	Now  func() time.Time  // nil: time.Now
	HTTP *http.Client      // nil: a client without a proxy; redirects are refused anyway
	Emit func(event.Event) // nil: nobody listens; safe for concurrent use
	// Mask is told every secret before it is used anywhere.
	Mask func(secret string)

	disk   disk   // tests put faults here
	bounds bounds // zero fields: the defaults
}

// Format hides the secrets among the fields.
func (s Sources) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "auth.Sources{"+s.Home+"}")
}

// path is where auth.json is looked for.
func (s *Sources) path() string { return filepath.Join(s.Home, fileName) }

// fill sets the defaults.
func (s *Sources) fill() {
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Emit == nil {
		s.Emit = func(event.Event) {}
	}
	if s.Mask == nil {
		s.Mask = func(string) {}
	}
	if s.disk == nil {
		s.disk = osDisk{}
	}
	s.bounds = s.bounds.orDefault()
	client := http.Client{}
	if s.HTTP != nil {
		client = *s.HTTP
	} else {
		client.Transport = &http.Transport{TLSHandshakeTimeout: 10 * time.Second}
	}
	// A redirect would carry the refresh token to another host.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.HTTP = &client
}

// Base addresses of the built-in provider.
const (
	apiBase     = "https://api.openai.com/v1"
	chatGPTBase = "https://chatgpt.com/backend-api"
)

// Credential authorizes the requests of one run.
type Credential struct {
	src      Sources
	choice   choice
	store    *store    // nil unless the credential is a ChatGPT login in auth.json
	endpoint *endpoint // nil as above
	account  string    // of the ChatGPT login; never changes
	fedRAMP  bool      // likewise

	mu      sync.Mutex
	known   []string        // every secret so far
	seen    map[string]bool // the same, for lookup
	login   login           // the ChatGPT login in force
	flight  *flight         // the refresh that is running
	fails   map[string]*setback
	fatal   *Error // a refresh whose result is not in auth.json
	closed  bool
	unsent  []byte // the newest bundle that the write-back did not take
	rescued string // where it is kept until then, if auth.json cannot take it
	owed    bool   // an earlier run's write-back failed or never happened

	asking sync.Mutex
	whoami string // the account of a personal token; guarded by asking
}

// Load chooses the credential. It makes no network request. It may write: an
// interrupted write of auth.json is finished first.
//
// The error is an *[Error], or the context's.
func Load(ctx context.Context, s Sources) (*Credential, error) {
	s.fill()
	c := &Credential{src: s, seen: map[string]bool{}, fails: map[string]*setback{}}
	st := &store{path: s.path(), disk: s.disk, bounds: s.bounds}
	hasFile := st.exists()
	ch, fromFile, e := s.choose(hasFile)
	c.learnLosers(st, hasFile && !fromFile)
	if e != nil {
		return nil, e
	}
	c.choice = *ch
	if fromFile {
		if e := c.loadFile(ctx, st); e != nil {
			return nil, e
		}
	} else if e := c.allowKeyless(); e != nil {
		return nil, e
	}
	c.learn(c.choice.secret)
	return c, nil
}

// learnLosers masks the secrets of the sources that lost: commands and models
// may come across them too.
func (c *Credential) learnLosers(st *store, fileLost bool) {
	list := []Secret{NewSecret(c.src.APIKeyStdin), NewSecret(c.src.Provider.BearerToken)}
	for _, name := range []string{envKey, envAccessToken, envFallbackKey, c.src.Provider.EnvKey} {
		if name != "" {
			list = append(list, NewSecret(c.src.env(name)))
		}
	}
	if fileLost {
		// Unreadable here is unreadable for everything that runs with our rights.
		if snap, err := st.read(); err == nil && snap.bundle != nil {
			b := snap.bundle
			list = append(list, b.apiKey, b.personal, b.access, b.refresh, b.idToken)
		}
	}
	c.learn(list...)
}

// allowKeyless checks a provider that names no key: a proxy adds one, so it
// counts as a key.
func (c *Credential) allowKeyless() *Error {
	if c.choice.mode != modeNone {
		return nil
	}
	return c.src.allow(c.choice.name, methodAPI, nil)
}

// exists tells whether there is something with the name of auth.json, also if
// it cannot be looked at.
func (s *store) exists() bool {
	_, err := s.disk.Traits(s.path)
	return !errors.Is(err, fs.ErrNotExist)
}

// loadFile takes the credential from auth.json.
func (c *Credential) loadFile(ctx context.Context, st *store) *Error {
	snap, notices, e := st.settle(ctx)
	if e != nil {
		return e
	}
	b := snap.bundle
	from := candidate{fileCandidate.source, "the login in " + st.path}
	chosen := &choice{}
	switch b.mode {
	case fileAPIKey:
		from.name = "the OPENAI_API_KEY of " + st.path
		chosen, e = c.src.key(from, b.apiKey.Reveal())
	case filePersonal:
		from.name = "the personal_access_token of " + st.path
		chosen, e = c.src.token(from, b.personal)
	case fileAgent:
		return &Error{
			Class: ClassUnsupported, Message: fmt.Sprintf("%s holds an agent identity, which is not supported", st.path),
			hint: "use an API key in " + envKey + ", or a ChatGPT login made with `codex login`",
		}
	default:
		chosen.mode = modeChatGPT
		e = c.src.allow(from.name, methodChatGPT, b.accounts())
		c.store = st
		c.endpoint = &endpoint{url: tokenURL, http: c.src.HTTP, bounds: c.src.bounds}
		if c.src.RefreshURL != "" {
			c.endpoint.url = c.src.RefreshURL
		}
		c.account, c.fedRAMP = b.account, b.fedRAMP
		c.owed = c.src.Writeback != nil && st.noteBeside(snap.target).Unsent == digest(snap.raw)
		c.adopt(b, time.Time{})
	}
	c.learn(b.apiKey, b.personal)
	if e != nil {
		return e
	}
	chosen.source, chosen.name = from.source, from.name
	chosen.ignored = append(c.choice.ignored, chosen.ignored...)
	if b.spare != "" {
		chosen.ignored = append(chosen.ignored, b.spare)
	}
	chosen.notices = append(append(c.choice.notices, notices...), looseMode(snap)...)
	c.choice = *chosen
	return nil
}

// noteBeside reads the note without the lock.
func (s *store) noteBeside(target string) note {
	b, err := s.readFile(target + lockSuffix)
	if err != nil {
		return note{}
	}
	return parseNote(b)
}

// looseMode reports permissions that are wider than a login should have.
func looseMode(snap *snapshot) []event.Notice {
	if snap.traits.mode&0o077 == 0 {
		return nil
	}
	return []event.Notice{{
		Class: "auth_mode", Origin: snap.target,
		Message: fmt.Sprintf("%s has mode %04o: other users of this machine may read the login", snap.target, snap.traits.mode),
		Hint:    "tighten it with `nightshift auth status --fix`",
	}}
}

// learn masks a secret and remembers it. The caller must not hold mu.
func (c *Credential) learn(list ...Secret) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learnLocked(list...)
}

func (c *Credential) learnLocked(list ...Secret) {
	for _, s := range list {
		if text := s.Reveal(); text != "" && !c.seen[text] {
			c.seen[text] = true
			c.known = append(c.known, text)
			c.src.Mask(text)
		}
	}
}

// Secrets returns every secret known so far, for masking. It is complete for
// what requests carry; a refresh adds to it and calls Sources.Mask.
func (c *Credential) Secrets() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.known...)
}

// Summary names the credential, never its value.
func (c *Credential) Summary() event.CredentialSelected {
	account := c.account
	if account == "" {
		account = c.choice.account
	}
	return event.CredentialSelected{
		Source: c.choice.source, Mode: c.choice.mode,
		Account: suffix(account), Ignored: c.choice.ignored,
	}
}

// Notices returns what a person should know about the choice. Load itself emits
// nothing, since a run's first event is not its business.
func (c *Credential) Notices() []event.Notice { return c.choice.notices }

// BaseURL is the base that the provider's requests go to with this credential:
// the built-in provider has one for keys and one for ChatGPT logins.
func (c *Credential) BaseURL() string {
	p := c.src.Provider
	if !p.BuiltIn || (p.BaseURL != "" && strings.TrimRight(p.BaseURL, "/") != apiBase) {
		return p.BaseURL
	}
	if c.choice.mode != modeChatGPT && c.choice.mode != modeToken {
		return apiBase
	}
	base := strings.TrimRight(c.src.ChatGPTBaseURL, "/")
	if base == "" {
		base = chatGPTBase
	}
	if strings.HasSuffix(base, "/codex") {
		return base
	}
	return base + "/codex"
}

// Authorize puts the credential on r, refreshing it first when that is due. It
// waits for a refresh at most as long as r's context; the refresh itself is not
// interrupted once its request is out.
func (c *Credential) Authorize(r *http.Request) error {
	switch c.choice.mode {
	case modeNone:
	case modeAPIKey:
		bearer(r, c.choice.secret)
		c.apiHeaders(r)
	case modeToken:
		account, err := c.tokenAccount(r.Context())
		if err != nil {
			return err
		}
		bearer(r, c.choice.secret)
		r.Header.Set(accountHeader, account)
	case modeChatGPT:
		access, err := c.fresh(r.Context())
		if err != nil {
			return err
		}
		bearer(r, access)
		r.Header.Set(accountHeader, c.account)
		if c.fedRAMP { // the service routes such accounts by it
			r.Header.Set("X-OpenAI-Fedramp", "true")
		}
	default:
		return fmt.Errorf("auth: no credential of mode %q exists; this is a bug", c.choice.mode)
	}
	return nil
}

const accountHeader = "ChatGPT-Account-ID"

func bearer(r *http.Request, s Secret) { r.Header.Set("Authorization", "Bearer "+s.Reveal()) }

// apiHeaders are the ones that go with an API key to the built-in provider.
func (c *Credential) apiHeaders(r *http.Request) {
	if !c.src.Provider.BuiltIn {
		return
	}
	for header, name := range map[string]string{"OpenAI-Organization": envOrganization, "OpenAI-Project": envProject} {
		if v := c.src.env(name); v != "" && headerSafe(NewSecret(v)) {
			r.Header.Set(header, v)
		}
	}
}

// String hides everything but the source.
func (c *Credential) String() string { return "credential from " + c.choice.source }

// Format does what String does, whatever the verb.
func (c *Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }
