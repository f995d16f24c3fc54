package mcp

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// maxName is the longest name the service takes.
const maxName = 64

// safeNames maps names to ones the service takes: letters, digits, - and _, at
// most 64 bytes with the prefix. A name that had to change and would meet
// another one, or was too long, ends in a hash of the original, so that it
// depends on nothing but itself and its neighbours' presence, not on order.
func safeNames(names []string, prefix string) map[string]string {
	users := map[string]int{}
	for _, name := range names {
		users[plainName(name)]++
	}
	safe := map[string]string{}
	for _, name := range names {
		plain := plainName(name)
		long := len(prefix)+len(plain) > maxName
		if long || plain != name && users[plain] > 1 || plain == "" {
			plain = hashedName(name, plain, maxName-len(prefix))
		}
		safe[name] = prefix + plain
	}
	return safe
}

// plainName replaces every byte that may not be in a name.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
}

func hashedName(name, plain string, max int) string {
	suffix := fmt.Sprintf("_%x", sha256.Sum256([]byte(name)))[:13]
	if len(plain)+len(suffix) > max {
		plain = plain[:max-len(suffix)]
	}
	return plain + suffix
}
