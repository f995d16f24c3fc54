package auth

import (
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Modes of event.CredentialSelected.
const (
	modeNone    = "none"
	modeAPIKey  = "apikey"
	modeChatGPT = "chatgpt"
	modeToken   = "token"
)

// Environment variables, read through Sources.LookupEnv only.
const (
	envKey          = "CODEX_API_KEY"
	envAccessToken  = "CODEX_ACCESS_TOKEN"
	envFallbackKey  = "OPENAI_API_KEY"
	envOrganization = "OPENAI_ORGANIZATION"
	envProject      = "OPENAI_PROJECT"
	envAuthAPI      = "CODEX_AUTHAPI_BASE_URL"
)

// choice is the winner among the sources. A choice of mode chatgpt has its
// secrets in auth.json.
type choice struct {
	source  string // "env CODEX_API_KEY"
	name    string // the same as a subject of a sentence
	mode    string
	secret  Secret
	account string // mode token, if the token names it
	hint    string // after a 401
	ignored []string
	notices []event.Notice
}

// candidate is a source that has something.
type candidate struct{ source, name string }

func envCandidate(name string) candidate {
	return candidate{"env " + name, "the environment variable " + name}
}

var (
	// stdinCandidate and fileCandidate are the sources that are not variables.
	stdinCandidate = candidate{"--api-key-stdin", "the key from --api-key-stdin"}
	fileCandidate  = candidate{fileName, fileName}
)

// choose applies the one documented order:
//
//  1. --api-key-stdin
//  2. a provider's own env_key, then its experimental_bearer_token
//  3. for the OpenAI provider and those with requires_openai_auth:
//     CODEX_API_KEY, CODEX_ACCESS_TOKEN, auth.json, and OPENAI_API_KEY only
//     where there is no auth.json
//  4. a provider that names no key gets none
//
// A source that is present but unusable ends the search with an error: another
// account must not pay by accident. hasFile tells whether auth.json is there;
// fromFile is true if it is the winner.
func (s *Sources) choose(hasFile bool) (c *choice, fromFile bool, e *Error) {
	openAI := s.Provider.BuiltIn || s.Provider.RequiresOpenAIAuth
	var present []candidate
	for _, name := range []string{envKey, envAccessToken} {
		if s.env(name) != "" {
			present = append(present, envCandidate(name))
		}
	}
	if hasFile && openAI {
		present = append(present, fileCandidate)
	}
	if openAI && s.env(envFallbackKey) != "" && s.Provider.EnvKey != envFallbackKey {
		present = append(present, envCandidate(envFallbackKey))
	}
	if s.Provider.EnvKey != "" && s.env(s.Provider.EnvKey) != "" && s.APIKeyStdin != "" {
		present = append(present, envCandidate(s.Provider.EnvKey))
	}
	switch {
	case s.APIKeyStdin != "":
		c, e = s.key(stdinCandidate, s.APIKeyStdin)
	case s.Provider.EnvKey != "":
		c, e = s.providerKey()
	case s.Provider.BearerToken != "":
		c, e = s.key(candidate{"experimental_bearer_token", "the experimental_bearer_token of provider " + s.Provider.Name}, s.Provider.BearerToken)
	case !openAI && s.Provider.BaseURL == "":
		// Keyless is a statement about a known place, never what is left when
		// nothing was said.
		e = &Error{Class: ClassMissing, Message: fmt.Sprintf("the provider %q has neither an address nor a key", s.Provider.Name), hint: "name a provider in model_provider, or give it a base_url and an env_key"}
	case !openAI:
		c = &choice{source: "none", name: "the provider " + s.Provider.Name + ", which names no key,", mode: modeNone}
	case s.env(envKey) != "":
		c, e = s.key(envCandidate(envKey), s.env(envKey))
	case s.env(envAccessToken) != "":
		c, e = s.accessToken()
	case hasFile:
		c, fromFile = &choice{source: fileCandidate.source, name: fileCandidate.name}, true
	case s.env(envFallbackKey) != "":
		c, e = s.key(envCandidate(envFallbackKey), s.env(envFallbackKey))
	default:
		e = s.nothing()
	}
	if e != nil {
		return nil, false, e
	}
	s.noteLosers(c, present, openAI)
	return c, fromFile, nil
}

// noteLosers says which sources were passed over. A key that everybody sets
// for other programs (OPENAI_API_KEY) is named, but is no reason for a notice.
func (s *Sources) noteLosers(c *choice, present []candidate, openAI bool) {
	for _, p := range present {
		if p.source == c.source {
			continue
		}
		c.ignored = append(c.ignored, p.source)
		if p.source == "env "+envFallbackKey {
			continue
		}
		why := "comes first"
		if !openAI {
			why = fmt.Sprintf("is what the provider %s names", s.Provider.Name)
		}
		if c.mode == modeNone {
			why = "needs none"
		}
		c.notices = append(c.notices, event.Notice{
			Class:   "auth_ignored",
			Message: fmt.Sprintf("%s is not used: %s %s", p.name, c.name, why),
			Origin:  p.source,
		})
	}
	if c.source == "env "+envFallbackKey && s.Provider.EnvKey != envFallbackKey {
		c.notices = append(c.notices, event.Notice{
			Class:   "auth_fallback",
			Message: fmt.Sprintf("%s pays for this run: there is neither %s nor %s nor %s", envFallbackKey, envKey, envAccessToken, s.path()),
			Hint:    fmt.Sprintf("set %s to say that this is meant", envKey),
		})
	}
}

// nothing is the error of a run without any credential.
func (s *Sources) nothing() *Error {
	e := &Error{
		Class:   ClassMissing,
		Message: fmt.Sprintf("there is no credential for the provider %s: no %s, no %s and no %s", s.Provider.Name, envKey, envAccessToken, s.path()),
		hint:    fmt.Sprintf("set %s from a secret of the job, or seed a login with `nightshift auth import < auth.json`", envKey),
	}
	if s.isSet(envKey) {
		e.Message += fmt.Sprintf("; %s is set but empty", envKey)
		e.hint = "CI systems hand out an empty value where a job may not read a secret, as in a pull request from a fork; " + e.hint
	}
	return e
}

// providerKey reads the provider's env_key.
func (s *Sources) providerKey() (*choice, *Error) {
	p := s.Provider
	v := s.env(p.EnvKey)
	if v != "" {
		return s.key(envCandidate(p.EnvKey), v)
	}
	state := "is not set"
	if s.isSet(p.EnvKey) {
		state = "is set but empty"
	}
	e := &Error{
		Class:   ClassMissing,
		Message: fmt.Sprintf("the environment variable %s, which holds the key of provider %s, %s", p.EnvKey, p.Name, state),
		hint:    fmt.Sprintf("set %s from a secret of the job, or hand the key over with --api-key-stdin", p.EnvKey),
	}
	if p.EnvKeyInstructions != "" {
		e.hint = p.EnvKeyInstructions
	}
	return nil, e
}

// key makes a choice of a static key.
func (s *Sources) key(from candidate, value string) (*choice, *Error) {
	secret := NewSecret(strings.TrimSpace(value))
	if secret.Empty() {
		return nil, &Error{Class: ClassMissing, Message: from.name + " is empty", hint: "a key is one word without spaces"}
	}
	if !headerSafe(secret) {
		return nil, &Error{
			Class:   ClassCorrupt,
			Message: from.name + " holds characters that a key cannot have",
			hint:    "a key is one line without spaces and quotes; look for a line break or a second line in the secret",
		}
	}
	if inQuotes(secret) {
		return nil, quoted(from)
	}
	c := &choice{source: from.source, name: from.name, mode: modeAPIKey, secret: secret, hint: "make a new key and store it as the job's secret"}
	if s.Provider.EnvKeyInstructions != "" && from == envCandidate(s.Provider.EnvKey) {
		c.hint = s.Provider.EnvKeyInstructions
	}
	return c, s.allow(from.name, methodAPI, nil)
}

// quoted refuses a value with the quotes of a shell around it, as a file of
// variables that no shell reads leaves them.
func quoted(from candidate) *Error {
	return &Error{
		Class:   ClassCorrupt,
		Message: from.name + " begins and ends with a quotation mark",
		hint:    "store the value without quotes; docker --env-file and many CI systems take them as a part of it",
	}
}

func inQuotes(s Secret) bool {
	text := s.Reveal()
	return len(text) > 1 && (text[0] == '"' || text[0] == '\'') && text[len(text)-1] == text[0]
}

// accessToken reads CODEX_ACCESS_TOKEN: a personal access token ("at-…"), whose
// account the service tells, or an access token of a ChatGPT login.
func (s *Sources) accessToken() (*choice, *Error) {
	from := envCandidate(envAccessToken)
	return s.token(from, NewSecret(s.env(envAccessToken)))
}

func (s *Sources) token(from candidate, token Secret) (*choice, *Error) {
	c := &choice{source: from.source, name: from.name, mode: modeToken, secret: token, hint: "make a new access token and store it as the job's secret"}
	if !headerSafe(token) {
		return nil, &Error{Class: ClassCorrupt, Message: from.name + " holds characters that a token cannot have", hint: "a token is one line without spaces and quotes"}
	}
	if inQuotes(token) {
		return nil, quoted(from)
	}
	if isPersonal(token) {
		// Its account is not known before the service was asked; then the
		// workspace is checked again.
		return c, s.allowMethod(from.name, methodChatGPT)
	}
	jwt, ok := readJWT(token)
	if !ok || jwt.account == "" {
		return nil, &Error{
			Class:   ClassUnsupported,
			Message: from.name + " is neither a personal access token (\"at-…\") nor an access token of a ChatGPT login; agent identities are not supported",
			hint:    "use a personal access token, an API key in " + envKey + ", or auth.json",
		}
	}
	c.account = jwt.account
	return c, s.allow(from.name, methodChatGPT, []string{jwt.account})
}

func isPersonal(token Secret) bool { return strings.HasPrefix(token.Reveal(), "at-") }

// env returns a trimmed variable; an empty one counts as unset.
func (s *Sources) env(name string) string {
	if s.LookupEnv == nil {
		return ""
	}
	v, _ := s.LookupEnv(name)
	return strings.TrimSpace(v)
}

// isSet tells whether a variable exists, empty or not.
func (s *Sources) isSet(name string) bool {
	if s.LookupEnv == nil {
		return false
	}
	_, ok := s.LookupEnv(name)
	return ok
}
