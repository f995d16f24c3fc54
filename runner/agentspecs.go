package runner

import (
	"fmt"
	"sort"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
)

// agentSpecs are the requests' descriptions of the sub-agent tools.
var agentSpecs = map[string]func(map[string]policy.AgentRole) string{
	"spawn_agent": func(roles map[string]policy.AgentRole) string {
		names := make([]string, 0, len(roles))
		for n := range roles {
			names = append(names, n)
		}
		sort.Strings(names)
		role := ""
		if len(names) > 0 {
			var lines []string
			for _, n := range names {
				lines = append(lines, n+": "+roles[n].Description)
			}
			role = fmt.Sprintf(`,"agent_type":{"type":"string","description":%s}`, quote("One of the configured roles. "+strings.Join(lines, "; ")))
		}
		return agentFunction("spawn_agent", "Start another agent on a task of its own. It has the same sandbox and policy, works in the same folder, sees nothing of this conversation, and cannot ask. Give it one self-contained task and tell it which files are its own. Returns its id at once.",
			`"message":{"type":"string","description":"The task, complete in itself."}`+role, "message")
	},
	"send_input": func(map[string]policy.AgentRole) string {
		return agentFunction("send_input", "Give an agent that has finished its turn another message.",
			`"id":{"type":"string"},"message":{"type":"string"}`, "id", "message")
	},
	"wait_agent": func(map[string]policy.AgentRole) string {
		return agentFunction("wait_agent", "Wait until at least one of the agents has finished, or the time is up. The answer holds the last message of each finished one.",
			`"ids":{"type":"array","items":{"type":"string"}},"timeout_ms":{"type":"number","description":"Default 30000, at most 600000."}`, "ids")
	},
	"close_agent": func(map[string]policy.AgentRole) string {
		return agentFunction("close_agent", "End an agent and everything it runs.", `"id":{"type":"string"}`, "id")
	},
}

func agentFunction(name, description, properties string, required ...string) string {
	return fmt.Sprintf(`{"type":"function","name":%q,"description":%s,"strict":false,"parameters":{"type":"object","properties":{%s},"required":[%s],"additionalProperties":false}}`,
		name, quote(description), properties, `"`+strings.Join(required, `","`)+`"`)
}
