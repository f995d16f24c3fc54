package policy

import (
	"strings"
	"sync"
)

// schema is a set of keys as a tree.
type schema struct {
	key      *key
	children map[string]*schema
	wild     *schema // for "*"
	elem     *schema // for "[]"
}

func newSchema(keys []key) *schema {
	root := &schema{children: map[string]*schema{}}
	for i := range keys {
		at := root
		for _, part := range strings.Split(keys[i].path, ".") {
			name, isArray := strings.CutSuffix(part, "[]")
			at = at.child(name)
			if isArray {
				if at.elem == nil {
					at.elem = &schema{children: map[string]*schema{}}
				}
				at = at.elem
			}
		}
		at.key = &keys[i]
	}
	return root
}

func (s *schema) child(name string) *schema {
	if name == "*" {
		if s.wild == nil {
			s.wild = &schema{children: map[string]*schema{}}
		}
		return s.wild
	}
	c := s.children[name]
	if c == nil {
		c = &schema{children: map[string]*schema{}}
		s.children[name] = c
	}
	return c
}

// find is the schema of one name in a table, nil if it is unknown.
func (s *schema) find(name string) *schema {
	if c := s.children[name]; c != nil {
		return c
	}
	return s.wild
}

var (
	configSchema      = sync.OnceValue(func() *schema { return newSchema(configKeys()) })
	requirementSchema = sync.OnceValue(func() *schema { return newSchema(requirementKeys()) })
)
