package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// requirementRules reads [rules].
func (ld *loader) requirementRules(q *requirements, v *node) {
	if v == nil {
		return
	}
	list := v.get("prefix_rules")
	if list == nil {
		if v.get("allow_unsandboxed") == nil && !ld.wasWrong("rules", "prefix_rules") && !ld.wasWrong("rules", "allow_unsandboxed") {
			ld.violated(v, "rules.prefix_rules", "rules needs prefix_rules", "add a rule, or remove the table [rules]")
		}
		return
	}
	if len(list.items) == 0 {
		ld.violated(list, "rules.prefix_rules", "rules.prefix_rules cannot be empty", "remove the table [rules], or add a rule")
		return
	}
	file := &rules.File{}
	for i, item := range list.items {
		if r, ok := ld.requirementRule(i, item); ok {
			file.Rules = append(file.Rules, r)
		}
	}
	q.rules = append(q.rules, file)
}

func (ld *loader) requirementRule(i int, v *node) (rules.Rule, bool) {
	before := len(ld.errs)
	bad := func(at *node, format string, args ...any) {
		ld.violated(at, fmt.Sprintf("rules.prefix_rules[%d]", i), fmt.Sprintf("rules.prefix_rules[%d] ", i)+fmt.Sprintf(format, args...), "")
	}
	r := rules.Rule{Origin: v.origin(), Layer: rules.Requirement}
	pattern := v.get("pattern")
	if pattern == nil || len(pattern.items) == 0 {
		bad(v, "has no pattern")
	} else {
		for p, element := range pattern.items {
			token, anyOf := element.get("token"), element.get("any_of")
			switch {
			case (token == nil) == (anyOf == nil):
				bad(element, "pattern element %d needs exactly one of token and any_of", p)
			case token != nil && token.text == "", anyOf != nil && (len(anyOf.items) == 0 || slices.Contains(stringsOf(anyOf), "")):
				bad(element, "pattern element %d is empty", p)
			case token != nil:
				r.Pattern = append(r.Pattern, []string{token.text})
			default:
				r.Pattern = append(r.Pattern, unique(stringsOf(anyOf)))
			}
		}
	}
	decision := v.get("decision")
	switch {
	case decision == nil:
		bad(v, "is missing a decision")
	case decision.text == "allow":
		bad(decision, "says allow; requirements can only prompt or forbid")
	case decision.text == "forbidden":
		r.Level = rules.Forbidden
	default:
		r.Level = rules.Prompt
	}
	if j := v.get("justification"); j != nil {
		if r.Justification = j.text; strings.TrimSpace(j.text) == "" {
			bad(j, "has a blank justification")
		}
	}
	if reviewer := v.get("reviewer"); reviewer != nil && r.Level != rules.Prompt {
		bad(reviewer, "has a reviewer, but does not prompt")
	}
	return r, len(ld.errs) == before
}
