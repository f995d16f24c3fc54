package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

var (
	errNoName   = errors.New("there is no host name")
	errLiteral  = errors.New("it is an address, and only names can be allowed")
	errEncoding = errors.New("a name with letters outside ASCII must be in its xn-- form")
	errName     = errors.New("it is not a valid host name")
)

// Host returns the canonical form of a host name: lower case, without the
// trailing dot. Addresses are refused in every notation that some resolver
// accepts (dotted, decimal, octal, hexadecimal, shortened, IPv6).
func Host(s string) (string, error) {
	name := strings.TrimSuffix(s, ".")
	if name == "" {
		return "", errNoName
	}
	if strings.ContainsAny(name, ":[]") {
		return "", errLiteral
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return "", errLiteral
	}
	if len(name) > 253 {
		return "", errName
	}
	b := []byte(name)
	size := 0 // of the label
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z':
			b[i] = c + 'a' - 'A'
			size++
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			size++
		case c == '.':
			if size == 0 {
				return "", errName
			}
			size = 0
		case c >= 0x80:
			return "", errEncoding
		default:
			return "", errName
		}
		if size > 63 {
			return "", errName
		}
	}
	if size == 0 {
		return "", errName
	}
	name = string(b)
	if numeric(name[strings.LastIndexByte(name, '.')+1:]) {
		return "", errLiteral
	}
	return name, nil
}

// numeric tells whether a last label makes a name an IPv4 address, as the URL
// standard has it: no top-level domain looks like this.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// hostPort splits "host:port" strictly. The host is not looked at.
func hostPort(s string) (host string, port int, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 0, errors.New("there is no port")
	}
	host = strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]")
	port, err = parsePort(s[i+1:])
	return host, port, err
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' {
		return 0, fmt.Errorf("%q is not a port", s)
	}
	return int(n), nil
}

// Pattern is one entry of a list of hosts:
//
//	example.com       that name only
//	*.example.com     every name below it, at any depth, but not itself
//	**.example.com    itself and every name below it
//	*                 every name
//
// each optionally with ":port". The zero Pattern matches nothing.
type Pattern struct {
	name string // canonical, without the wildcard
	self bool   // name matches
	sub  bool   // names below match
	port int    // 0: any
}

// ParsePattern reads a pattern. Addresses, URLs and wildcards elsewhere are
// errors, since they would never match what their writer had in mind.
func ParsePattern(s string) (Pattern, error) {
	p := Pattern{self: true}
	bad := func(why string) (Pattern, error) {
		return Pattern{}, fmt.Errorf("host pattern %q: %s", s, why)
	}
	rest := s
	if strings.Contains(rest, "/") {
		return bad("write a host name, not a URL or a network")
	}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && strings.Count(rest, ":") == 1 {
		port, err := parsePort(rest[i+1:])
		if err != nil {
			return bad(err.Error())
		}
		rest, p.port = rest[:i], port
	}
	if rest == "*" {
		p.sub = true
		return p, nil
	}
	if sub, ok := strings.CutPrefix(rest, "**."); ok {
		rest, p.sub = sub, true
	} else if sub, ok := strings.CutPrefix(rest, "*."); ok {
		rest, p.sub, p.self = sub, true, false
	}
	if strings.Contains(rest, "*") {
		return bad("a wildcard can only stand for whole names in front: *.example.com, **.example.com or *")
	}
	name, err := Host(rest)
	if err != nil {
		return bad(err.Error())
	}
	p.name = name
	return p, nil
}

// PortNamed tells whether the pattern is for one port.
func (p Pattern) PortNamed() bool { return p.port != 0 }

// Match tells whether a canonical host name (see [Host]) and port match.
func (p Pattern) Match(host string, port int) bool {
	if p.port != 0 && p.port != port || host == "" {
		return false
	}
	if p.name == "" {
		return p.sub
	}
	return p.self && host == p.name || p.sub && strings.HasSuffix(host, "."+p.name)
}
