package runner

import (
	"context"
	"encoding/json"

	"github.com/nightshift-ci/nightshift/runner/hook"
	"github.com/nightshift-ci/nightshift/runner/mcp"
	"github.com/nightshift-ci/nightshift/runner/tool"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Helpers are the functions that run inside the confined child, by name. Main
// hands them to sandbox.Init.
func Helpers() map[string]sandbox.HelperFunc { return tool.Helpers() }

// toolset is the tools of a run.
type toolset struct {
	list    []tool.Tool
	specs   []json.RawMessage
	builtin *tool.Set
	hooks   *hook.Runner // nil without hooks; ask hooked first
	agent   bool         // of a sub-agent
}

// hooked tells whether any hook listens to that event. Those of the session and
// of the user's prompt are not for sub-agents: what a model tells an agent is a
// call of a tool, which PreToolUse sees.
func (t *toolset) hooked(name string) bool {
	if t.agent && (name == "SessionStart" || name == "UserPromptSubmit" || name == "Stop") {
		return false
	}
	return t.hooks != nil && t.hooks.Has(name)
}

// namespaced is a tool that lives in a namespace.
type namespaced interface{ Namespace() string }

func namespaceOf(t tool.Tool) string {
	if n, ok := t.(namespaced); ok {
		return n.Namespace()
	}
	return ""
}

// builtinNamespace is how some models address the tools that have no namespace.
const builtinNamespace = "functions"

func (t *toolset) find(namespace, name string) tool.Tool {
	if namespace == builtinNamespace {
		namespace = ""
	}
	for _, one := range t.list {
		if namespaceOf(one) == namespace && one.Name() == name {
			return one
		}
	}
	return nil
}

func (t *toolset) parallel(c call) bool {
	one := t.find(c.Namespace, c.Name)
	return one == nil || one.Parallel()
}

// openTools starts everything that may answer a call: hooks, the built-in
// tools, MCP servers and sub-agents.
func (r *run) openTools(ctx context.Context, conf *Confinement) error {
	r.tools = &toolset{agent: r.Mode == "agent"}
	if len(r.cfg.Hooks) > 0 {
		hooks, err := hook.New(r.hookOptions())
		if err != nil {
			return &TurnError{Class: "hook_config", Message: err.Error(), Code: ExitUsage}
		}
		r.tools.hooks = hooks
	}
	r.startServers(ctx, conf)
	r.tools.builtin = tool.Builtin(tool.Deps{Log: r.log, Box: func(context.Context) (*sandbox.Sandbox, error) { return r.box, nil },
		Policy: r.Policy, Workdir: r.Workdir, Shell: r.state.shell, NoLogin: !r.cfg.AllowLoginShell, Env: r.childEnv, Scope: conf.PatchScope(),
		Limits: conf.Spec.Limits, Mask: r.Mask, UpdatePlan: r.cfg.UpdatePlan, ViewImage: r.cfg.ViewImage, NoShell: !r.cfg.Shell,
		NoTerminals: !r.cfg.Terminals, MaxTokens: r.cfg.OutputTokens, PollMost: r.cfg.PollTimeout, WebSearch: r.cfg.WebSearch, Now: r.Now})
	r.tools.list = r.tools.builtin.Tools()
	r.openAgents(ctx)
	if r.row != nil {
		r.tools.list = append(r.tools.list, &reportTool{r, r.row})
	}
	if r.state.servers != nil {
		if err := r.state.servers.Ready(ctx); err != nil {
			return &TurnError{Class: "mcp_required", Message: err.Error(), Code: ExitFailed}
		}
		r.tools.list = append(r.tools.list, r.state.servers.Tools()...)
	}
	r.tools.specs = append(r.tools.specs, mcp.Specs(r.tools.list)...)
	return nil
}

func (r *run) hookOptions() hook.Options {
	transcript := ""
	if r.Thread.Store != nil {
		transcript = r.Thread.Store.Path()
	}
	return hook.Options{Hooks: r.cfg.Hooks, Sandbox: r.box, Dir: r.Workdir, Env: r.childEnv(""), Shell: r.state.shell,
		SessionID: r.Thread.ID, Transcript: transcript, Model: r.cfg.Model, Permission: "bypassPermissions", Log: r.log, Mask: r.Mask}
}

// startServers begins to start the MCP servers; they get ready beside the rest.
func (r *run) startServers(ctx context.Context, conf *Confinement) {
	if len(r.cfg.MCPServers) == 0 {
		return
	}
	r.state.servers = mcp.Start(ctx, mcp.Options{Servers: r.cfg.MCPServers, Sandbox: r.box, Dir: r.Workdir, Env: r.childEnv(""),
		LookupEnv: r.lookupEnv, Version: r.Version, Log: r.log, Mask: r.Mask, HTTP: r.HTTP, Decide: r.decideServerCall,
		// Servers may say a fifth more than commands, in bytes.
		MaxText: int(min(r.cfg.OutputTokens, 1<<20)) * 4 * 6 / 5})
	r.onEnd(func(context.Context) { r.logError("the MCP servers", r.state.servers.Close()) })
}

// decideServerCall asks policy about a call of an MCP tool.
func (r *run) decideServerCall(q mcp.Request) mcp.Decision {
	v := r.Policy.MCPTool(q.Server, q.Tool, q.ReadOnly, q.Destructive)
	return mcp.Decision{Allowed: v.Outcome != "denied", Reason: v.Reason, Source: v.Source}
}
