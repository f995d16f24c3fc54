package auth

import (
	"context"
	"fmt"
	"io"
	"net/http"
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

// Writeback hands a new auth.json to a store outside this machine. The bundle
// must not be kept after the call.
type Writeback func(ctx context.Context, bundle []byte) error

// Sources is everything a credential is chosen from.
type Sources struct {
	Home      string // CODEX_HOME, the folder of auth.json
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
	// ReadOnlyOK: refresh even where the result cannot be stored.
	ReadOnlyOK bool
	// RescueDir, if set, is a private folder that takes a new bundle when
	// nothing else could.
	RescueDir string
	// RefreshURL replaces the token endpoint (CODEX_REFRESH_TOKEN_URL_OVERRIDE).
	RefreshURL string
	// ChatGPTBaseURL is chatgpt_base_url; empty: the public one.
	ChatGPTBaseURL string

	Now  func() time.Time  // nil: time.Now
	HTTP *http.Client      // nil: a client without a proxy
	Emit func(event.Event) // nil: nobody listens
	Mask func(secret string)
}

// Format hides the secrets among the fields.
func (s Sources) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "auth.Sources{Home:"+s.Home+"}")
}

// Credential authorizes the requests of one run.
type Credential struct{}

// Load chooses the credential.
func Load(ctx context.Context, s Sources) (*Credential, error) { return &Credential{}, nil }

// Authorize puts the credential on r.
func (c *Credential) Authorize(r *http.Request) error { return nil }

// Refused reacts to a 401.
func (c *Credential) Refused(ctx context.Context) error { return nil }

// Secrets returns every secret known so far.
func (c *Credential) Secrets() []string { return nil }

// Summary names the credential.
func (c *Credential) Summary() event.CredentialSelected { return event.CredentialSelected{} }

// Notices returns what a person should know about the choice.
func (c *Credential) Notices() []event.Notice { return nil }

// BaseURL is the base that the provider's requests go to with this credential.
func (c *Credential) BaseURL() string { return "" }

// Close waits for a refresh in flight and makes the last write-back.
func (c *Credential) Close(ctx context.Context) error { return nil }
