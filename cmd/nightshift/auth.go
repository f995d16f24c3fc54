package main

import "time"

// authCmd groups what can be done with the login.
type authCmd struct {
	Status  authStatusCmd  `cmd:"" help:"Say which credential a run would use, and what would come of it. No network."`
	Refresh authRefreshCmd `cmd:"" help:"Refresh the ChatGPT login in auth.json now; for a maintenance job."`
	Import  authImportCmd  `cmd:"" help:"Seed auth.json from stdin, only if it is missing."`
}

// authFlags choose the provider and the restrictions, as exec does.
type authFlags struct {
	Config       []string `name:"config" short:"c" sep:"none" placeholder:"KEY=VALUE" help:"Override a configuration value. Repeatable."`
	Profile      string   `short:"p" help:"Profile: NAME.config.toml in CODEX_HOME, or [profiles.NAME]."`
	Requirements []string `sep:"none" placeholder:"FILE" help:"One more requirements.toml. Repeatable."`
}

// authStatusCmd is "auth status".
type authStatusCmd struct {
	authFlags
	JSON bool `name:"json" help:"One JSON object on stdout."`
	Fix  bool `help:"Tighten the mode of auth.json to 0600."`
}

// Run prints the state of the credential; exit 5 when a run would have none.
func (c *authStatusCmd) Run(rt *runtime) error { return nil }

// authRefreshCmd is "auth refresh".
type authRefreshCmd struct {
	authFlags
	IfDue         bool   `help:"Only if a run would refresh now."`
	AuthWriteback string `placeholder:"CMD" help:"Run CMD with the new auth.json on stdin."`
	JSON          bool   `name:"json" help:"One JSON object on stdout."`
}

// Run refreshes; exit 5 when that fails.
func (c *authRefreshCmd) Run(rt *runtime) error { return nil }

// authImportCmd is "auth import".
type authImportCmd struct {
	Force   bool          `help:"Replace an auth.json that is there."`
	Timeout time.Duration `default:"30s" help:"How long to wait for stdin."`
}

// Run seeds auth.json.
func (c *authImportCmd) Run(rt *runtime) error { return nil }
