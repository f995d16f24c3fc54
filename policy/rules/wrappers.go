package rules

import (
	"slices"
	"strings"
)

// wrapper tells how a program that runs another one takes its arguments: which
// of its options have a value in the next word, and how many operands stand
// before the command.
type wrapper struct {
	// values are options with a value of their own word.
	values []string
	// flags are options without a value.
	flags []string
	// attached are options whose value may only be attached (-o=v, -oV): any
	// word with this prefix.
	attached []string
	// before is the number of operands in front of the command.
	before int
	// assigns: NAME=VALUE words may stand in front of the command.
	assigns bool
	// text are options whose value is a script.
	text []string
	// split are options whose value is split into words of the command.
	split []string
	// joins: the words of the command are joined and given to sh -c.
	joins bool
	// query are options that make the program only look, not run.
	query []string
	// sub is a word that must come first, as `run` of `uv run`.
	sub []string
	// shell: without a command the program starts a shell.
	shell bool
	// any: options are too many to list; every one is taken to have no value,
	// and each later word may begin the command.
	any bool
}

// wrappers are programs that run the command in their arguments, with the
// options that matter for finding it. An option that is not listed makes the
// reading doubtful: each later word may then begin the command.
var wrappers = map[string]wrapper{
	"env": {
		values:   []string{"-u", "--unset", "-C", "--chdir", "-a", "--argv0"},
		flags:    []string{"-i", "--ignore-environment", "-", "-0", "--null", "-v", "--debug", "--list-signal-handling"},
		attached: []string{"--unset=", "--chdir=", "--argv0=", "--block-signal", "--default-signal", "--ignore-signal", "-u", "-C"},
		split:    []string{"-S", "--split-string"}, assigns: true,
	},
	"command": {flags: []string{"-p"}, query: []string{"-v", "-V", "-pv", "-pV"}},
	"builtin": {},
	"exec":    {values: []string{"-a"}, flags: []string{"-c", "-l", "-cl", "-lc"}},
	"nohup":   {},
	"nice": {
		values:   []string{"-n", "--adjustment"},
		attached: []string{"-n", "--adjustment=", "-0", "-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9", "--1"},
	},
	"ionice": {
		values: []string{"-c", "--class", "-n", "--classdata"}, flags: []string{"-t", "--ignore"},
		attached: []string{"-c", "-n", "--class=", "--classdata="},
	},
	"timeout": {
		values: []string{"-k", "--kill-after", "-s", "--signal"}, flags: []string{"--foreground", "--preserve-status", "-v", "--verbose", "-f", "-p"},
		attached: []string{"-k", "-s", "--kill-after=", "--signal="}, before: 1,
	},
	"stdbuf": {
		values:   []string{"-i", "-o", "-e", "--input", "--output", "--error"},
		attached: []string{"-i", "-o", "-e", "--input=", "--output=", "--error="},
	},
	"setsid": {flags: []string{"-c", "--ctty", "-f", "--fork", "-w", "--wait", "-fw", "-wf"}},
	"time": {
		values: []string{
			"-f", "--format", "-o", "--output",
		}, flags: []string{"-a", "--append", "-p", "--portability", "-v", "--verbose", "-q", "--quiet"},
		attached: []string{"--format=", "--output="},
	},
	"chrt": {
		values: []string{"-T", "-P", "-D", "--sched-runtime", "--sched-period", "--sched-deadline"},
		flags: []string{
			"-a", "-b", "-d", "-f", "-i", "-o", "-r", "-v", "-R", "--batch", "--fifo", "--idle", "--other", "--rr", "--deadline",
			"--reset-on-fork",
		},
		before: 1,
	},
	"taskset": {flags: []string{"-a", "--all-tasks", "-c", "--cpu-list", "-ac"}, before: 1},
	"sudo": {
		values: []string{"-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "--close-from", "-r", "--role", "-t", "--type",
			"-T", "--command-timeout", "-U", "--other-user", "-D", "--chdir", "-R", "--chroot"},
		flags: []string{
			"-n", "--non-interactive", "-E", "--preserve-env", "-H", "--set-home", "-S", "--stdin", "-b", "--background", "-A",
			"--askpass", "-k", "--reset-timestamp", "-P", "--preserve-groups", "-B", "--bell", "-N", "-i", "--login", "-s",
			"--shell", "-nE", "-En", "-EH", "-HE", "-nH",
		},
		attached: []string{
			"--user=", "--group=", "--host=", "--prompt=", "--close-from=", "--preserve-env=", "--chdir=", "--chroot=",
			"--command-timeout=",
		},
		query: []string{"-l", "--list", "-v", "--validate", "-e", "--edit", "-V", "--version", "-K"}, assigns: true, shell: true,
	},
	"doas":     {values: []string{"-u", "-C"}, flags: []string{"-n", "-s", "-L"}, shell: true},
	"su":       {any: true, text: []string{"-c", "--command"}, shell: true},
	"runuser":  {any: true, text: []string{"-c", "--command"}, shell: true},
	"pkexec":   {values: []string{"--user"}, flags: []string{"--disable-internal-agent", "--keep-cwd"}, shell: true},
	"gosu":     {before: 1},
	"su-exec":  {before: 1},
	"chroot":   {flags: []string{"--skip-chdir"}, attached: []string{"--userspec=", "--groups="}, before: 1, shell: true},
	"fakeroot": {values: []string{"-l", "--lib", "-s", "-i", "-b", "--faked"}, flags: []string{"-u", "--unknown-is-real"}, shell: true},
	"cgexec":   {values: []string{"-g"}, flags: []string{"--sticky"}},
	"script":   {any: true, text: []string{"-c", "--command"}, shell: true},
	"flock": {
		values: []string{"-w", "--wait", "--timeout", "-E", "--conflict-exit-code"},
		flags: []string{"-s", "--shared", "-x", "-e", "--exclusive", "-u", "--unlock", "-n", "--nb", "--nonblock", "-o", "--close", "-F", "--no-fork",
			"--verbose"},
		attached: []string{"--wait=", "--timeout=", "--conflict-exit-code="}, text: []string{"-c", "--command"}, before: 1,
	},
	"envdir":    {before: 1},
	"envuidgid": {before: 1},
	"setuidgid": {before: 1},
	"watch": {
		values: []string{"-n", "--interval", "-q", "--equexit"},
		flags: []string{"-b", "--beep", "-c", "--color", "-C", "-d", "--differences", "-e", "--errexit", "-g", "--chgexit", "-p", "--precise", "-r",
			"-t", "--no-title", "-w", "-x", "--exec"},
		attached: []string{"-n", "--interval=", "-d=", "--differences="}, joins: true,
	},
	"chronic":   {flags: []string{"-v", "-e", "-ev"}},
	"ifne":      {flags: []string{"-n"}},
	"unbuffer":  {flags: []string{"-p"}},
	"parallel":  {any: true, joins: true, shell: true},
	"sem":       {any: true, joins: true, shell: true},
	"sg":        {any: true, text: []string{"-c"}, joins: true, shell: true},
	"newgrp":    {flags: []string{"-"}, before: 1, shell: true},
	"capsh":     {any: true, text: []string{"-c"}, shell: true},
	"tmux":      {any: true, joins: true},
	"screen":    {any: true, joins: true},
	"nix-shell": {any: true, text: []string{"--run", "--command"}},
}

// looseWrappers have options of which only so much is known that a command
// follows them.
var looseWrappers = strings.Fields(`numactl setpriv bwrap fakechroot systemd-run systemd-inhibit
	strace ltrace gdb valgrind perf catchsegv rr heaptrack uftrace bpftrace
	prlimit cpulimit trickle setarch linux32 linux64 i386 x86_64
	dbus-run-session dbus-launch xvfb-run ssh-agent flatpak-spawn lockrun setlock softlimit chpst
	retry eatmydata nocache rlwrap torsocks torify proxychains proxychains4 tsocks
	tini dumb-init catatonit faketime direnv dotenv entr corepack rust-parallel
	choom uclampset runcon gpg-agent hyperfine abduco dtach
	ccache sccache distcc bear npx bunx uvx`)

// shellWrappers are loose wrappers that start a shell when no command follows.
var shellWrappers = strings.Fields(`unshare nsenter firejail proot`)

// subWrappers run a command after one of these words, as `uv run`.
var subWrappers = map[string][]string{
	"uv": {"run"}, "poetry": {"run"}, "pipenv": {"run"}, "pdm": {"run"}, "hatch": {"run"}, "rye": {"run"}, "conda": {"run"}, "mamba": {"run"},
	"bundle": {"exec"}, "npm": {"exec", "x"}, "pnpm": {"exec", "dlx"}, "yarn": {"exec", "dlx"}, "bun": {"x", "exec"}, "opam": {"exec"},
	"rustup": {
		"run",
	}, "mise": {"exec", "x"}, "asdf": {"exec"}, "rbenv": {"exec"}, "pyenv": {"exec"}, "nvm": {"exec", "run"}, "nix": {"run", "shell", "develop"},
}

// wrapperOf is how a program runs another one, false if it does not.
func wrapperOf(name string) (wrapper, bool) {
	if w, ok := wrappers[strings.TrimPrefix(name, "g")]; ok && name == "gtimeout" {
		return w, true
	}
	if w, ok := wrappers[name]; ok {
		return w, true
	}
	if sub, ok := subWrappers[name]; ok {
		return wrapper{any: true, sub: sub}, true
	}
	if slices.Contains(shellWrappers, name) {
		return wrapper{any: true, shell: true}, true
	}
	return wrapper{any: true}, slices.Contains(looseWrappers, name)
}

// textOptions are options of programs that are not wrappers but run their value
// as a command line.
var textOptions = map[string][]string{
	"tar":    {"--to-command", "--use-compress-program", "-I", "--rsh-command", "--info-script", "--new-volume-script", "-F", "--checkpoint-action"},
	"rsync":  {"-e", "--rsh", "--rsync-path"},
	"scp":    {"-S"},
	"sftp":   {"-S"},
	"ssh":    {"-o"},
	"man":    {"-P", "--pager", "-H", "--html"},
	"sort":   {"--compress-program"},
	"split":  {"--filter"},
	"zip":    {"-TT", "--unzip-command"},
	"less":   {"-k"},
	"rg":     {"--pre", "--hostname-bin"},
	"ag":     {"--pager"},
	"fd":     {"-x", "--exec", "-X", "--exec-batch"},
	"fdfind": {"-x", "--exec", "-X", "--exec-batch"},
	"go":     {"-exec", "-toolexec", "-vettool"},
	"wget":   {"--use-askpass"},
}

// textBuiltins are shell builtins whose operand is a script.
var textBuiltins = map[string][]string{
	"complete": {"-C", "-W"}, "compgen": {"-C", "-W"}, "mapfile": {"-C"}, "readarray": {"-C"}, "bind": {"-x"}, "fc": {"-e"},
}

// use is what programs do with a variable.
type use int

const (
	ordinary use = iota
	// runsText: some program runs the value as a command line.
	runsText
	// changesMeaning: the value decides what other command lines mean, or names
	// a file of commands.
	changesMeaning
)

func variableUse(name string) use {
	switch name {
	case "PROMPT_COMMAND",
		"PS0", "PS1", "PS2", "PS3", "PS4", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER",
		"GIT_EXTERNAL_DIFF", "GIT_ASKPASS", "GIT_PROXY_COMMAND", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE",
		"BROWSER", "SSH_ASKPASS", "SUDO_EDITOR", "SUDO_ASKPASS", "FCEDIT", "RSYNC_RSH", "CVS_RSH", "TAR_OPTIONS":
		return runsText
	case "BASH_ENV",
		"ENV", "GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS",
		"GIT_CONFIG", "GIT_TEMPLATE_DIR", "BASH_ALIASES", "BASH_CMDS", "LD_PRELOAD", "LD_AUDIT", "SHELLOPTS", "BASHOPTS":
		return changesMeaning
	}
	if strings.HasPrefix(name, "GIT_CONFIG_") || strings.HasPrefix(name, "BASH_FUNC_") {
		return changesMeaning
	}
	return ordinary
}
