package policy

import "time"

// Config is the effective configuration: every value decided, conflicts with
// requirements already resolved. It is shared and must not be changed.
type Config struct {
	Model            string
	ModelProvider    string // key of the provider in force
	Provider         Provider
	ReasoningEffort  string
	ReasoningSummary string
	Verbosity        string
	ServiceTier      string // as the service names it: flex, priority; "" is its default
	ContextWindow    int64  // tokens, 0: unknown
	CompactLimit     int64  // model_auto_compact_token_limit, 0: none
	ModelFallback    []string
	ReviewModel      string // review_model, "" = Model

	ApprovalPolicy string // always "never" in effect; see Policy.ApprovalRequired
	SandboxMode    string // read-only, workspace-write, danger-full-access
	WebSearch      string // disabled, cached, indexed, live
	// AllowLoginShell: false means that shells must not be login shells.
	AllowLoginShell bool
	Residency       string // enforce_residency

	Instructions          string // model_instructions_file or instructions, "" = built-in
	DeveloperInstructions string
	CompactPrompt         string

	ProjectDocMaxBytes  int
	ProjectDocFallbacks []string
	ProjectRootMarkers  []string
	ProjectTrusted      bool
	TrustEntry          string // trusted, untrusted, "" = none
	// ProjectRoot is the folder of the first root marker at or above the
	// working folder, or the working folder.
	ProjectRoot string

	UpdatePlan bool // tools.update_plan.enabled
	ViewImage  bool // tools.view_image and features.view_image, default true
	Shell      bool // features.shell_tool: commands can be run, default true
	Terminals  bool // features.unified_exec_tty: commands may have a terminal, default true

	// OutputTokens is the most the model sees of one tool's output, in tokens
	// (tool_output_token_limit); PollTimeout the longest wait for a session
	// (background_terminal_max_timeout). 0: the tools' defaults.
	OutputTokens  int64
	PollTimeout   time.Duration
	HideReasoning bool // hide_agent_reasoning: in the text for people
	// What the context of a run leaves out.
	NoEnvironmentContext, NoPermissionsText, NoSkillsListing bool

	MCPServers map[string]MCPServer
	Hooks      []Hook
	Notify     []string
	Skills     SkillsConfig
	Agents     AgentsConfig
	Features   map[string]bool

	Environment EnvironmentPolicy
	OTel        OTel
	Limits      Limits
	Prices      Prices
	Sandbox     SandboxConfig
	Auth        AuthConfig
	Verify      []string
}

// Provider is one entry of model_providers.
type Provider struct {
	Name               string
	BaseURL            string
	WireAPI            string
	EnvKey             string
	EnvKeyInstructions string
	BearerToken        string // experimental_bearer_token
	RequiresOpenAIAuth bool
	HTTPHeaders        map[string]string
	EnvHTTPHeaders     map[string]string // header name to variable name
	QueryParams        map[string]string
	RequestMaxRetries  int
	StreamMaxRetries   int
	StreamIdleTimeout  time.Duration
	RetryBudget        time.Duration // wall time all retries of one request may take; 0: default
	BuiltIn            bool
}

// MCPServer is one entry of mcp_servers.
type MCPServer struct {
	Name              string
	Enabled           bool
	Required          bool
	Command           string
	Args              []string
	Env               map[string]string
	EnvVars           []string // names passed through from the environment
	Cwd               string
	URL               string
	BearerTokenEnvVar string
	HTTPHeaders       map[string]string
	EnvHTTPHeaders    map[string]string
	StartupTimeout    time.Duration
	ToolTimeout       time.Duration
	EnabledTools      []string // nil: all
	DisabledTools     []string
	DefaultApproval   string            // auto, prompt, approve
	ToolApproval      map[string]string // tool to mode
	Sandbox           string            // "" = the run's sandbox; "none" only where policy allows
	DisabledBy        string            // requirement that switched it off, file:line
	Origin            string
}

// Hook is one command hook.
type Hook struct {
	Event   string
	Matcher string // regular expression, "" or "*" = all
	Command string
	Timeout time.Duration
	OnError string // block, continue
	Managed bool   // from system config or requirements: cannot be switched off
	Origin  string
}

// SkillsConfig switches skills.
type SkillsConfig struct{ Disabled []string }

// AgentsConfig bounds sub-agents.
type AgentsConfig struct {
	MaxThreads int // 0: not set
	MaxDepth   int // 0: not set; -1: no agent may start another
	// JobMaxRuntime bounds one worker of a CSV job; 0: the default.
	JobMaxRuntime time.Duration
	Roles         map[string]AgentRole
}

// AgentRole is one entry of [agents].
type AgentRole struct {
	Description string
	ConfigFile  string
	Model       string
	Effort      string
	// Instructions are the role's developer_instructions.
	Instructions string
}

// EnvironmentPolicy is shell_environment_policy with our strict defaults.
type EnvironmentPolicy struct {
	Inherit               string // all, core, none
	IgnoreDefaultExcludes bool   // false: names with KEY, SECRET, TOKEN … are dropped
	Exclude               []string
	IncludeOnly           []string
	Set                   map[string]string
}

// OTel is [otel].
type OTel struct {
	Environment        string
	Logs               Exporter
	Traces             Exporter
	Metrics            Exporter
	LogUserPrompt      bool
	LogAgentResponses  bool
	LogToolOutput      bool
	ToolResultMaxBytes int
	SpanAttributes     map[string]string
	FlushTimeout       time.Duration
}

// Exporter is one OTLP exporter; Kind "" or "none" is off.
type Exporter struct {
	Kind              string // none, otlp-http, otlp-grpc
	Endpoint          string
	Protocol          string // binary, json
	Headers           map[string]string
	CACertificate     string
	ClientCertificate string
	ClientKey         string
}

// Limits are the bounds of a run; zero is no bound.
type Limits struct {
	MaxTurns            int
	MaxToolCalls        int
	MaxWallTime         time.Duration
	MaxIdleTime         time.Duration
	MaxTokens           int64
	MaxCostUSD          float64
	MaxRepeatedFailures int
	NoFinalAnswer       bool
	VerifyRounds        int
	StopHookRounds      int
}

// Prices are US dollars for a million tokens per model.
type Prices struct {
	Date   string
	Models map[string]ModelPrice
}

// ModelPrice is the price of one model, US dollars for a million tokens.
type ModelPrice struct{ Input, CachedInput, Output float64 }

// SandboxConfig is [sandbox] (ours) with sandbox_workspace_write.
type SandboxConfig struct {
	WritableRoots   []string
	NetworkAccess   bool
	ExcludeSlashTmp bool
	ExcludeTmpdir   bool
	DenyRead        []string
	Require         []string // guarantee names; nil: the default set
	Degrade         []string // weaker mechanisms the user accepts by name
	HostTmp         bool
	MemoryBytes     int64
	Processes       int64
	CPUPercent      int64
	FileBytes       int64
	PrivateCaches   bool // default true
	// AllowUnsandboxed: an allow rule may run its command outside the sandbox;
	// only requirements can set it.
	AllowUnsandboxed bool
	Network          NetworkPolicy
}

// NetworkPolicy is permissions.network.
type NetworkPolicy struct {
	Enabled        bool   // an allow list through the proxy
	Mode           string // limited (GET, HEAD, OPTIONS), full
	AllowedDomains []string
	DeniedDomains  []string
	UnixSockets    []string
	AllowLocal     bool
}

// AuthConfig is what limits and stores credentials.
type AuthConfig struct {
	ForcedLoginMethod string // chatgpt, api, ""
	ForcedWorkspaces  []string
	AllowedMethods    []string // requirements; nil: all
	AllowedWorkspaces []string
	Store             string // file
	Writeback         string // command
	ReadOnlyOK        bool   // the user accepts that a refresh cannot be stored
	BaseURL           string // chatgpt_base_url
}
