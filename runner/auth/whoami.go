package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// authAPI is where the account of a personal access token is asked for.
const authAPI = "https://auth.openai.com/api/accounts"

// tokenAccount returns the account of the token in force. For a personal token
// the service is asked once per run, and no request goes out before it has
// answered: an unknown token is not a credential.
func (c *Credential) tokenAccount(ctx context.Context) (string, error) {
	if !isPersonal(c.choice.secret) {
		jwt, _ := readJWT(c.choice.secret)
		if !jwt.expires.IsZero() && !c.src.Now().Before(jwt.expires) {
			return "", &Error{
				Class:   ClassTokenExpired,
				Message: fmt.Sprintf("%s ran out at %s", c.choice.name, jwt.expires.Format(time.RFC3339)),
				hint:    c.choice.hint,
			}
		}
		return c.choice.account, nil
	}
	// Held over the request: callers at the same time share its answer.
	c.asking.Lock()
	defer c.asking.Unlock()
	if c.whoami != "" {
		return c.whoami, nil
	}
	account, e := c.askAccount(ctx)
	if e == nil {
		e = c.src.allowWorkspace(c.choice.name, methodChatGPT, []string{account})
	}
	if e != nil {
		return "", e
	}
	c.whoami = account
	return account, nil
}

func (c *Credential) askAccount(ctx context.Context) (string, *Error) {
	base := c.src.env(envAuthAPI)
	if base == "" {
		base = authAPI
	}
	pause := c.src.bounds.pause
	for attempt := 1; ; attempt++ {
		account, again, e := c.askAccountOnce(ctx, strings.TrimRight(base, "/")+"/v1/user-auth-credential/whoami")
		if e == nil || !again || attempt == maxAttempts {
			return account, e
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", e
		}
		pause *= 2
	}
}

func (c *Credential) askAccountOnce(ctx context.Context, address string) (account string, again bool, e *Error) {
	ctx, cancel := context.WithTimeout(ctx, c.src.bounds.attempt)
	defer cancel()
	fail := func(class, what string, retryable bool) *Error {
		return &Error{Class: class, Message: fmt.Sprintf("the account of %s could not be found out: %s", c.choice.name, what), Retryable: retryable, hint: c.choice.hint}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", false, fail(ClassUnsupported, envAuthAPI+" is not a valid address", false)
	}
	bearer(req, c.choice.secret)
	req.Header.Set("Accept", "application/json")
	req.Close = true
	resp, err := c.src.HTTP.Do(req)
	if err != nil {
		return "", true, fail(ClassRefreshUnavailable, plainly(err, c.src.bounds.attempt), true)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return "", false, fail(ClassKeyRefused, fmt.Sprintf("the service refused it (HTTP %d)", resp.StatusCode), false)
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return "", true, fail(ClassRefreshUnavailable, fmt.Sprintf("the service answered HTTP %d", resp.StatusCode), true)
	case err != nil:
		return "", true, fail(ClassRefreshUnavailable, plainly(err, c.src.bounds.attempt), true)
	}
	var body struct {
		Account string `json:"chatgpt_account_id"`
	}
	if resp.StatusCode/100 != 2 || json.Unmarshal(text, &body) != nil || body.Account == "" || !headerSafe(NewSecret(body.Account)) {
		return "", false, fail(ClassRefreshBadAnswer, fmt.Sprintf("the service answered HTTP %d without an account", resp.StatusCode), true)
	}
	return body.Account, false, nil
}
