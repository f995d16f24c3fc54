package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/report"
)

// runFlags are the options that exec, resume, fork and review share: the
// reference's set under their names, then ours.
type runFlags struct {
	Config       []string `name:"config" short:"c" sep:"none" placeholder:"KEY=VALUE" help:"Override a configuration value; KEY is a dotted path, VALUE is TOML or a plain string. Repeatable."`
	Enable       []string `placeholder:"FEATURE" help:"Same as -c features.FEATURE=true."`
	Disable      []string `placeholder:"FEATURE" help:"Same as -c features.FEATURE=false."`
	StrictConfig bool     `help:"Unknown configuration keys are errors."`
	Image        []string `short:"i" sep:"," placeholder:"FILE" help:"Attach images to the prompt."`
	Model        string   `short:"m" placeholder:"MODEL" help:"Model to use."`
	Profile      string   `short:"p" placeholder:"NAME" help:"Profile: NAME.config.toml in CODEX_HOME, or [profiles.NAME]."`
	Sandbox      string   `short:"s" placeholder:"MODE" help:"What commands may write: read-only (the default where nothing is configured), workspace-write or danger-full-access."`
	Cd           string   `name:"cd" short:"C" placeholder:"DIR" help:"Working folder of the agent."`
	AddDir       []string `sep:"none" placeholder:"DIR" help:"One more writable folder. Repeatable."`

	SkipGitRepoCheck bool   `help:"Run outside a git repository too."`
	Ephemeral        bool   `help:"Keep no thread on disk."`
	IgnoreUserConfig bool   `help:"Do not read config.toml of CODEX_HOME."`
	IgnoreRules      bool   `help:"Do not read user and project .rules files."`
	OutputSchema     string `placeholder:"FILE" help:"JSON Schema that the final answer must fit; it is checked here too."`
	Color            string `default:"auto" placeholder:"WHEN" help:"always, never or auto."`
	JSON             bool   `name:"json" help:"Events as JSON lines on stdout."`
	LastMessage      string `name:"output-last-message" short:"o" placeholder:"FILE" help:"Write the final message to FILE."`
	Search           bool   `help:"Let the model use live web search."`
	Trust            bool   `help:"Treat the project as trusted in this run: its .codex/config.toml is read. Nothing is written."`
	Worktree         bool   `help:"Work in a detached git worktree of HEAD under CODEX_HOME."`
	ThreadSource     string `default:"user" placeholder:"TEXT" help:"Recorded as the thread's source."`
	Bypass           bool   `name:"dangerously-bypass-approvals-and-sandbox" help:"No sandbox at all; only where requirements allow it."`

	// Accepted so that scripts work, and said to have no effect.
	BypassHookTrust    bool   `name:"dangerously-bypass-hook-trust" hidden:""`
	ApproveForMe       bool   `hidden:""`
	FullAuto           bool   `hidden:""`
	OSS                bool   `name:"oss" hidden:""`
	LocalProvider      string `hidden:""`
	CyberAccessProgram string `hidden:""`
	Remote             string `hidden:""`
	RemoteAuthTokenEnv string `hidden:""`

	Events           string        `group:"nightshift" placeholder:"FILE" help:"Write the full numbered event log to FILE."`
	ReportDir        string        `group:"nightshift" placeholder:"DIR" help:"Write the usual set of reports into DIR."`
	Report           []string      `group:"nightshift" sep:"none" placeholder:"FORMAT=PATH" help:"Write one report; the path - is stdout. Repeatable. Formats: json, markdown, html, junit, sarif, codequality, dotenv, checkstyle, ctrf, patch, mail-patch, provenance."`
	SignKey          string        `group:"nightshift" placeholder:"FILE" help:"Sign the provenance with this PEM private key."`
	NoGitHub         bool          `name:"no-github" group:"nightshift" help:"Do not write step summary, annotations and outputs, even where the CI variables are set."`
	PromptFile       string        `group:"nightshift" placeholder:"FILE" help:"Read the prompt from FILE."`
	IdlePromptWait   time.Duration `group:"nightshift" placeholder:"DUR" help:"How long stdin may stay silent: when the prompt comes from it (default 10m; 15s for a pipe that only callers of this process hold), or beside a prompt (default 2s)."`
	ModelScript      string        `group:"nightshift" placeholder:"FILE" help:"Play a script of replies, as --record writes it, instead of asking a model: no key, no network. debug server --help shows one."`
	Record           string        `group:"nightshift" placeholder:"FILE" help:"Record the model's responses to FILE, for --model-script."`
	Requirements     []string      `group:"nightshift" sep:"none" placeholder:"FILE" help:"One more requirements.toml; it can only tighten. Repeatable."`
	APIKeyStdin      bool          `name:"api-key-stdin" group:"nightshift" help:"Read the API key from the first line of stdin."`
	AuthWriteback    string        `group:"nightshift" placeholder:"CMD" help:"Run CMD with the new auth.json on stdin after each refresh."`
	InstructionsFrom string        `group:"nightshift" placeholder:"REF" help:"Read AGENTS.md from this git ref instead of the working tree (for changes from forks)."`
	DenyRead         []string      `group:"nightshift" sep:"none" placeholder:"PATH" help:"Commands cannot read PATH. Repeatable."`
	AllowDomain      []string      `group:"nightshift" sep:"none" placeholder:"HOST" help:"Commands may reach HOST through the egress proxy. Repeatable."`
	Strict           bool          `group:"nightshift" help:"Denials and failed tools end in exit code 9."`
	Verify           []string      `group:"nightshift" sep:"none" placeholder:"CMD" help:"After the model says it is done, CMD must pass. Repeatable."`
	VerifyRounds     int           `group:"nightshift" default:"-1" placeholder:"N" help:"How often a failed --verify is handed back to the model (default 3)."`
	ModelFallback    []string      `group:"nightshift" sep:"," placeholder:"MODEL" help:"Models to try when the first is overloaded or unavailable."`
	Deterministic    bool          `group:"nightshift" help:"Fixed ids and times, for replays that must be equal byte for byte."`
	LogLevel         string        `group:"nightshift" default:"off" placeholder:"LEVEL" help:"Diagnostics of nightshift itself on stderr: off, error, warn, info, debug, trace (also NIGHTSHIFT_LOG)."`

	MaxTurns            int           `group:"limits" placeholder:"N" help:"Model responses."`
	MaxToolCalls        int           `group:"limits" placeholder:"N" help:"Tool calls."`
	MaxWallTime         time.Duration `group:"limits" placeholder:"DUR" help:"Wall time, as 15m or 1h30m."`
	MaxIdleTime         time.Duration `group:"limits" placeholder:"DUR" help:"Time without a finished item, as 5m."`
	MaxTokens           int64         `group:"limits" placeholder:"N" help:"Tokens in and out."`
	MaxCost             float64       `group:"limits" placeholder:"USD" help:"Money, by [prices] of the configuration."`
	MaxRepeatedFailures int           `group:"limits" placeholder:"N" help:"The same tool call failing the same way in a row."`
	NoFinalAnswer       bool          `group:"limits" help:"Stop at a limit without asking the model to sum up."`
}

// Validate checks what the grammar cannot.
func (f *runFlags) Validate() error {
	switch f.Sandbox {
	case "", "read-only", "workspace-write", "danger-full-access":
	default:
		return fmt.Errorf("invalid value '%s' for '--sandbox' [possible values: read-only, workspace-write, danger-full-access]", f.Sandbox)
	}
	switch f.Color {
	case "auto", "always", "never":
	default:
		return fmt.Errorf("invalid value '%s' for '--color' [possible values: always, never, auto]", f.Color)
	}
	if _, err := zerolog.ParseLevel(strings.Replace(f.LogLevel, "off", "disabled", 1)); err != nil {
		return fmt.Errorf("invalid value '%s' for '--log-level' [possible values: off, error, warn, info, debug, trace]", f.LogLevel)
	}
	switch f.CyberAccessProgram {
	case "", "standard", "daybreak_blue", "daybreak_red":
	default:
		return fmt.Errorf("invalid value '%s' for '--cyber-access-program' [possible values: standard, daybreak_blue, daybreak_red]", f.CyberAccessProgram)
	}
	// These would send the work somewhere else; to do it here instead is not what
	// was asked for.
	if f.Remote != "" || f.RemoteAuthTokenEnv != "" {
		return fmt.Errorf("'--remote' is not offered: nightshift works on this machine only")
	}
	if f.OSS || f.LocalProvider != "" {
		return fmt.Errorf("'--oss' and '--local-provider' are not offered: name the local server in [model_providers.NAME] with its base_url, and choose it with -c model_provider=NAME")
	}
	if f.FullAuto {
		return fmt.Errorf("unexpected argument '--full-auto': use --sandbox workspace-write")
	}
	if f.ApproveForMe {
		return fmt.Errorf("'--approve-for-me' is not offered: no second model decides about leaving the sandbox here; write a rule or widen the sandbox instead")
	}
	if err := notNegative([]amount{{"--max-turns", float64(f.MaxTurns)}, {"--max-tool-calls", float64(f.MaxToolCalls)},
		{"--max-tokens", float64(f.MaxTokens)}, {"--max-wall-time", float64(f.MaxWallTime)}, {"--max-idle-time", float64(f.MaxIdleTime)},
		{"--max-repeated-failures", float64(f.MaxRepeatedFailures)}}); err != nil {
		return err
	}
	if f.MaxCost < 0 || math.IsNaN(f.MaxCost) || math.IsInf(f.MaxCost, 0) {
		return fmt.Errorf("--max-cost must be an amount of money, not %v", f.MaxCost)
	}
	return nil
}

// amount is a flag with a number.
type amount struct {
	flag  string
	value float64
}

// notNegative refuses the first amount that is below zero or no number.
func notNegative(list []amount) error {
	for _, a := range list {
		if a.value < 0 {
			return fmt.Errorf("%s must not be negative", a.flag)
		}
		if math.IsNaN(a.value) || math.IsInf(a.value, 0) { // no spending ever reaches it
			return fmt.Errorf("%s must be a number, not %v", a.flag, a.value)
		}
	}
	return nil
}

// policyFlags are the dedicated flags as policy sees them: applied last, and an
// error where a requirement refuses one.
func (f *runFlags) policyFlags(rt *runtime) policy.Flags {
	fl := policy.Flags{
		Model: f.Model, Sandbox: f.Sandbox, Bypass: f.Bypass, Verify: f.Verify, Writeback: f.AuthWriteback,
		Fallback: f.ModelFallback, NetworkAllow: f.AllowDomain,
		Limits: policy.Limits{MaxTurns: f.MaxTurns, MaxToolCalls: f.MaxToolCalls, MaxWallTime: f.MaxWallTime,
			MaxIdleTime: f.MaxIdleTime, MaxTokens: f.MaxTokens, MaxCostUSD: f.MaxCost,
			MaxRepeatedFailures: f.MaxRepeatedFailures, NoFinalAnswer: f.NoFinalAnswer, VerifyRounds: f.VerifyRounds},
		LimitsSet: map[string]bool{
			"max_turns": f.MaxTurns > 0, "max_tool_calls": f.MaxToolCalls > 0, "max_wall_time": f.MaxWallTime > 0,
			"max_idle_time": f.MaxIdleTime > 0, "max_tokens": f.MaxTokens > 0, "max_cost_usd": f.MaxCost > 0,
			"max_repeated_failures": f.MaxRepeatedFailures > 0, "no_final_answer": f.NoFinalAnswer, "verify_rounds": f.VerifyRounds >= 0,
		},
	}
	if f.Search {
		fl.WebSearch = "live"
	}
	for _, d := range f.AddDir {
		fl.AddDirs = append(fl.AddDirs, rt.abs(d))
	}
	for _, d := range f.DenyRead {
		fl.DenyRead = append(fl.DenyRead, rt.abs(d))
	}
	return fl
}

// diag is the log of nightshift itself: one JSON object a line on stderr, with
// secrets masked. It is for whoever debugs nightshift; nothing that a user must
// know is said only there.
func (s *session) diag() zerolog.Logger {
	level := s.flags.LogLevel
	if v := s.rt.getenv("NIGHTSHIFT_LOG"); v != "" && level == "off" {
		level = v
	}
	l, err := zerolog.ParseLevel(strings.Replace(level, "off", "disabled", 1))
	if err != nil { // of the variable: the flag has been checked
		fmt.Fprintf(s.rt.stderr, "Warning: NIGHTSHIFT_LOG is %s, which is no level (off, error, warn, info, debug, trace): no diagnostics are written\n", report.PlainLine(level, 40))
	}
	if err != nil || l == zerolog.Disabled {
		return zerolog.Nop()
	}
	return zerolog.New(s.mask.Writer(s.rt.stderr)).Level(l).With().Timestamp().Logger()
}
