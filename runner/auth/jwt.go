package auth

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// claims are the parts of a JSON web token that matter here. The signature is
// not checked: the service does that, and nothing is granted by what we read.
type claims struct {
	expires time.Time // zero: not said
	account string    // chatgpt_account_id
	user    string    // chatgpt_user_id
	plan    string
	fedRAMP bool // chatgpt_account_is_fedramp
}

// readJWT reads the claims of token. ok is false for an opaque token.
func readJWT(token Secret) (c claims, ok bool) {
	parts := strings.Split(token.Reveal(), ".")
	if len(parts) != 3 {
		return claims{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return claims{}, false
	}
	// Each claim is read for itself: an odd one must not hide the others.
	var body map[string]json.RawMessage
	if json.Unmarshal(payload, &body) != nil || body == nil {
		return claims{}, false
	}
	var exp float64
	// Seconds since 1970; beyond the year 9999 a time cannot be written down.
	if json.Unmarshal(body["exp"], &exp) == nil && exp > 0 && exp < 253402300800 {
		c.expires = time.Unix(int64(exp), 0).UTC()
	}
	var login map[string]json.RawMessage
	if json.Unmarshal(body["https://api.openai.com/auth"], &login) == nil {
		_ = json.Unmarshal(login["chatgpt_account_id"], &c.account) // absent or odd: unknown
		_ = json.Unmarshal(login["chatgpt_user_id"], &c.user)
		_ = json.Unmarshal(login["chatgpt_plan_type"], &c.plan)
		_ = json.Unmarshal(login["chatgpt_account_is_fedramp"], &c.fedRAMP)
	}
	return c, true
}
