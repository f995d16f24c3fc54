package main

import (
	"fmt"
	"os"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner"
)

// policyCmd looks at policy without running anything.
type policyCmd struct {
	Check   policyCheckCmd   `cmd:"" help:"Decide on one command as a run in this folder would. Exit 0: it would run; exit 3: it would be refused."`
	Explain policyExplainCmd `cmd:"" help:"Show where values come from, what every layer says, and what requirements bound."`
	Lint    policyLintCmd    `cmd:"" help:"Find every mistake of policy files, each with its position. Exit 2 or 3 if there is one."`
	Diff    policyDiffCmd    `cmd:"" help:"Show what a new requirements file would change. Exit 0 if nothing, else 1."`
	Replay  policyReplayCmd  `cmd:"" help:"Decide the recorded calls of a run again under other requirements. Exit 3 if a call that ran would be refused."`
	Schema  policySchemaCmd  `cmd:"" help:"Print the JSON Schema of config.toml or requirements.toml."`
}

// policyFlags choose the layers that a policy is made of.
type policyFlags struct {
	Dir              string   `name:"cd" short:"C" placeholder:"DIR" help:"Folder of the run."`
	Config           []string `name:"config" short:"c" sep:"none" placeholder:"KEY=VALUE" help:"Override a configuration value. Repeatable."`
	Profile          string   `short:"p" placeholder:"NAME" help:"Profile to use."`
	Sandbox          string   `short:"s" placeholder:"MODE" help:"Sandbox mode: read-only, workspace-write or danger-full-access."`
	Requirements     []string `sep:"none" placeholder:"FILE" help:"One more requirements.toml. Repeatable."`
	Rules            []string `short:"r" sep:"none" placeholder:"FILE" help:"Check with this rules file instead of those of user and project. Repeatable."`
	IgnoreUserConfig bool     `help:"Do not read config.toml of CODEX_HOME."`
	IgnoreRules      bool     `help:"Do not read user and project .rules files."`
}

// sources are the layers of a run in the chosen folder.
func (f *policyFlags) sources(rt *runtime) (policy.Sources, error) {
	home, err := rt.codexHome()
	if err != nil {
		return policy.Sources{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return policy.Sources{}, fmt.Errorf("the host name cannot be read: %w", err)
	}
	dir, err := rt.folder(f.Dir)
	if err != nil {
		return policy.Sources{}, err
	}
	src := policy.Sources{Files: rt.files(), SystemDir: rt.systemDir, Home: home, UserHome: rt.userHome(), Cwd: dir, Profile: f.Profile,
		IgnoreUser: f.IgnoreUserConfig, IgnoreRules: f.IgnoreRules || len(f.Rules) > 0, Hostname: host, LookupEnv: rt.lookupEnv}
	src.Flags.Sandbox = f.Sandbox
	for _, c := range f.Config {
		o, err := policy.ParseOverride(c)
		if err != nil {
			return src, exitError{code: runner.ExitUsage, err: err}
		}
		src.Overrides = append(src.Overrides, o)
	}
	for _, r := range f.Requirements {
		src.Requirements = append(src.Requirements, rt.abs(r))
	}
	for _, r := range f.Rules {
		src.Rules = append(src.Rules, rt.abs(r))
	}
	return src, nil
}

func (f *policyFlags) load(rt *runtime) (*policy.Policy, error) {
	src, err := f.sources(rt)
	if err != nil {
		return nil, err
	}
	return policy.Load(src)
}

// policySchemaCmd prints a JSON Schema.
type policySchemaCmd struct {
	Name string `arg:"" enum:"config,requirements" help:"config or requirements."`
}

// Run prints it.
func (c *policySchemaCmd) Run(rt *runtime) error {
	data, err := policy.Schema(c.Name)
	if err != nil {
		return usageError("%v", err)
	}
	_, err = rt.stdout.Write(data)
	return err
}
