package runnertest

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// TokenAnswer is one answer of a [Tokens] endpoint that is not the honest one.
type TokenAnswer struct {
	Status int
	Header http.Header
	Body   string
	// Delay comes before the answer, Stall between its header and its body.
	Delay, Stall time.Duration
	// Drop closes the connection instead of answering.
	Drop bool
	// Spend rotates the refresh token although the answer does not say so: the
	// worst kind of failure.
	Spend bool
}

// TokenRequest is one request that the endpoint got.
type TokenRequest struct {
	ClientID     string `json:"client_id"`
	GrantType    string `json:"grant_type"`
	RefreshToken string `json:"refresh_token"`
	Reason       string `json:"refresh_reason"`
	Header       http.Header
	Time         time.Time
}

// Tokens is a token endpoint that rotates refresh tokens.
type Tokens struct {
	// URL is the address of the endpoint, for CODEX_REFRESH_TOKEN_URL_OVERRIDE.
	URL string

	server *httptest.Server
	mu     sync.Mutex
}
