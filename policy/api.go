package policy

// Policy is the effective policy of one run. It is immutable and safe for
// concurrent use.
type Policy struct {
	config  Config
	notices []Notice
}

// Load reads every layer and decides every value. The error is an [*Errors]
// with all mistakes at once.
func Load(src Sources) (*Policy, error) { return &Policy{}, nil }

// Config is the effective configuration; it must not be changed.
func (p *Policy) Config() *Config { return &p.config }

// Notices is what the user must be told, in order.
func (p *Policy) Notices() []Notice { return p.notices }

// Digest is "sha256:…" over the effective policy.
func (p *Policy) Digest() string { return "" }

// Origins names the layer of each value that is not a default: key to
// "file:line" or the flag.
func (p *Policy) Origins() map[string]string { return nil }

// Layer is one source of values, lowest first in [Policy.Layers].
type Layer struct {
	Name string // system, user, profile, project, session-flags, managed, flags, requirements
	Path string // "" for flags
	Used bool   // false: named in Why
	Why  string
}

// Layers lists every source that was looked at, lowest first.
func (p *Policy) Layers() []Layer { return nil }

// Explanation is where a value comes from.
type Explanation struct {
	Key        string       `json:"key"`
	Known      bool         `json:"known"`
	Use        string       `json:"use,omitempty"` // used, unused, requirement
	Type       string       `json:"type,omitempty"`
	Doc        string       `json:"doc,omitempty"`
	Value      any          `json:"value"`
	Default    any          `json:"default,omitempty"`
	Origin     string       `json:"origin"` // file:line, flag or "default"
	Layers     []LayerValue `json:"layers,omitempty"`
	Constraint []Constraint `json:"constraints,omitempty"`
	Suggestion string       `json:"suggestion,omitempty"`
}

// LayerValue is the value of a key in one layer.
type LayerValue struct {
	Layer   string `json:"layer"`
	Origin  string `json:"origin"`
	Value   any    `json:"value"`
	Winner  bool   `json:"winner"`
	Ignored string `json:"ignored,omitempty"` // why the layer may not set it
}

// Constraint is a requirement on a key.
type Constraint struct {
	Requirement string `json:"requirement"`
	Value       any    `json:"value"`
	Origin      string `json:"origin"`
}

// Explain says what a key's value is, where from, and what constrains it.
func (p *Policy) Explain(key string) Explanation { return Explanation{Key: key} }

// Permissions is what commands may touch, as plain data for a sandbox.
type Permissions struct {
	Mode      string // read-only, workspace-write, danger-full-access
	Workspace string
	// Write are the writable roots (workspace first), absolute; empty under
	// read-only.
	Write []string
	// ProtectNames stay read-only inside every writable root.
	ProtectNames []string
	// Deny are absolute paths that must not be readable.
	Deny    []string
	Network NetworkPermissions
	Sandbox SandboxConfig
}

// NetworkPermissions is the network of commands.
type NetworkPermissions struct {
	Mode        string // off, proxy, host
	UnixSockets []string
}

// Permissions is what a command in dir may touch. dir is absolute.
func (p *Policy) Permissions(dir string) (Permissions, error) { return Permissions{}, nil }

// Command decides on one program.
func (p *Policy) Command(argv []string) Verdict { return Verdict{} }

// Shell decides on a script that shellPath will run; login tells whether it is
// a login shell.
func (p *Policy) Shell(script, shellPath string, login bool) Verdict { return Verdict{} }

// Escalation decides on a script for which the model asks to leave the sandbox.
func (p *Policy) Escalation(script, shellPath string, login bool) Verdict { return Verdict{} }

// HostDecision is the answer for one connection.
type HostDecision struct {
	Allowed bool
	Reason  string
	Rule    string
	Origin  string
}

// Host decides on a connection to name:port. method is the HTTP method,
// "CONNECT", or "" for SOCKS.
func (p *Policy) Host(name string, port int, method string) HostDecision { return HostDecision{} }

// MCPTool decides on a call of an MCP tool.
func (p *Policy) MCPTool(server, tool string, readOnlyHint, destructiveHint bool) Verdict {
	return Verdict{}
}

// Environment is the environment commands get, made from environ.
func (p *Policy) Environment(environ []string) []string { return nil }

// PermissionsText tells the model in plain words what it may do.
func (p *Policy) PermissionsText() string { return "" }

// ForbiddenExecutables are the programs that must not be executed at all: bare
// names or absolute paths.
func (p *Policy) ForbiddenExecutables() []string { return nil }

// ParseOverride reads the argument of -c.
func ParseOverride(text string) (Override, error) { return Override{}, nil }
