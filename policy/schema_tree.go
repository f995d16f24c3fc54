package policy

import (
	"strings"
	"sync"
)

// schema is a set of keys as a tree.
type schema struct {
	key      *key
	children map[string]*schema
	any      func() *schema // for "*", nil where only the children are known
	elem     *schema        // for "[]"
}

func newSchema(keys []key) *schema {
	root := &schema{}
	for i := range keys {
		at := root
		for part := range strings.SplitSeq(keys[i].path, ".") {
			name, isArray := strings.CutSuffix(part, "[]")
			at = at.child(name)
			if isArray {
				if at.elem == nil {
					at.elem = &schema{}
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
		if s.any == nil {
			one := &schema{}
			s.any = func() *schema { return one }
		}
		return s.any()
	}
	c := s.children[name]
	if c == nil {
		c = &schema{}
		if s.children == nil {
			s.children = map[string]*schema{}
		}
		s.children[name] = c
	}
	return c
}

// find is the schema of one name in a table, nil if it is unknown.
func (s *schema) find(name string) *schema {
	if c := s.children[name]; c != nil {
		return c
	}
	if s.any == nil {
		return nil
	}
	return s.any()
}

var (
	configSchema = sync.OnceValue(func() *schema {
		s := newSchema(configKeys())
		// Made for who has a profile: it is as large as all the rest.
		s.child("profiles").any = sync.OnceValue(func() *schema { return newSchema(profileKeys()) })
		return s
	})
	requirementSchema = sync.OnceValue(func() *schema { return newSchema(requirementKeys()) })
)
