package policy

import (
	"fmt"
	"strconv"
	"time"
)

// flagLayer makes a layer of the dedicated flags, nil if none was given.
func (ld *loader) flagLayer() *layer {
	f := ld.src.Flags
	l := &layer{name: "flags", used: true, explicit: true}
	l.root = newTable(l)
	put := func(flag string, v *node, path ...string) {
		v.layer = &layer{name: "flags", flag: flag, explicit: true}
		l.root = l.root.with(v, path...)
	}
	str := func(flag, value string, path ...string) {
		if value != "" {
			put(flag, &node{kind: kString, text: value}, path...)
		}
	}
	list := func(flag string, values []string, path ...string) {
		if len(values) == 0 {
			return
		}
		v := &node{kind: kArray}
		for _, s := range values {
			v.items = append(v.items, &node{kind: kString, text: s, layer: &layer{name: "flags", flag: flag, explicit: true}})
		}
		put(flag, v, path...)
	}
	str("-m", f.Model, "model")
	switch {
	case f.Bypass:
		str("--dangerously-bypass-approvals-and-sandbox", "danger-full-access", "sandbox_mode")
	case f.Sandbox != "":
		str("-s", f.Sandbox, "sandbox_mode")
	case f.ApproveForMe:
		str("--approve-for-me", "workspace-write", "sandbox_mode")
	}
	str("--search", f.WebSearch, "web_search")
	list("--verify", f.Verify, "verify")
	list("--model-fallback", f.Fallback, "model_fallback")
	list("--degrade", f.Degrade, "sandbox", "degrade")
	str("--auth-writeback", f.Writeback, "auth", "writeback")
	ld.limitFlags(f, put)
	if f.ApproveForMe {
		ld.notice(Notice{Class: "approve_for_me", Origin: "--approve-for-me",
			Message: "--approve-for-me: there is no automatic reviewer; what it would review is denied, and the sandbox is workspace-write"})
	}
	if len(l.root.keys) == 0 {
		return nil
	}
	return l
}

// limitFlags adds the limits that flags set. LimitsSet names them as the keys
// of [limits].
func (ld *loader) limitFlags(f Flags, put func(flag string, v *node, path ...string)) {
	integer := func(n int64) *node { return &node{kind: kInteger, number: n, text: strconv.FormatInt(n, 10)} }
	span := func(d time.Duration) *node { return &node{kind: kString, text: d.String()} }
	number := func(x float64) *node {
		return &node{kind: kFloat, float: x, text: strconv.FormatFloat(x, 'g', -1, 64)}
	}
	values := map[string]*node{
		"max_turns": integer(int64(f.Limits.MaxTurns)), "max_tool_calls": integer(int64(f.Limits.MaxToolCalls)), "max_tokens": integer(f.Limits.MaxTokens),
		"max_wall_time": span(f.Limits.MaxWallTime), "max_idle_time": span(f.Limits.MaxIdleTime), "max_cost_usd": number(f.Limits.MaxCostUSD),
		"max_repeated_failures": integer(int64(f.Limits.MaxRepeatedFailures)), "no_final_answer": {kind: kBool, yes: f.Limits.NoFinalAnswer},
		"verify_rounds": integer(int64(f.Limits.VerifyRounds)), "stop_hook_rounds": integer(int64(f.Limits.StopHookRounds)),
	}
	for _, name := range sortedKeys(f.LimitsSet) {
		if !f.LimitsSet[name] {
			continue
		}
		if v := values[name]; v != nil {
			put(limitFlag(name), v, "limits", name)
			continue
		}
		ld.usage("", name, fmt.Sprintf("there is no limit %q", name), "limits are "+fmt.Sprint(sortedKeys(values)))
	}
}

// limitFlag is the flag of a key of [limits].
func limitFlag(name string) string {
	flag := "--"
	for _, c := range name {
		if c == '_' {
			c = '-'
		}
		flag += string(c)
	}
	if name == "max_cost_usd" {
		return "--max-cost"
	}
	return flag
}
