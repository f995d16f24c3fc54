package rules

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

// wrappers are programs that run the command in their arguments. Options that
// are not listed make the reading doubtful: each later word may then begin the
// command.
var wrappers = map[string]wrapper{
	"env": {values: []string{"-u", "--unset", "-C", "--chdir", "-a", "--argv0"}, flags: []string{"-i", "--ignore-environment", "-", "-0", "--null", "-v", "--debug", "--list-signal-handling"},
		attached: []string{"--unset=", "--chdir=", "--argv0=", "--block-signal", "--default-signal", "--ignore-signal", "-u", "-C"}, assigns: true, split: []string{"-S", "--split-string"}},
	"command":     {flags: []string{"-p"}, query: []string{"-v", "-V", "-pv", "-pV"}},
	"builtin":     {},
	"exec":        {values: []string{"-a"}, flags: []string{"-c", "-l", "-cl", "-lc"}},
	"nohup":       {},
	"nice":        {values: []string{"-n", "--adjustment"}, attached: []string{"-n", "--adjustment=", "-0", "-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9", "--1"}},
	"ionice":      {values: []string{"-c", "--class", "-n", "--classdata"}, flags: []string{"-t", "--ignore"}, attached: []string{"-c", "-n", "--class=", "--classdata="}},
	"timeout":     {values: []string{"-k", "--kill-after", "-s", "--signal"}, flags: []string{"--foreground", "--preserve-status", "-v", "--verbose", "-f", "-p"}, attached: []string{"-k", "-s", "--kill-after=", "--signal="}, before: 1},
	"gtimeout":    {values: []string{"-k", "--kill-after", "-s", "--signal"}, flags: []string{"--foreground", "--preserve-status", "-v", "--verbose"}, attached: []string{"-k", "-s", "--kill-after=", "--signal="}, before: 1},
	"stdbuf":      {values: []string{"-i", "-o", "-e", "--input", "--output", "--error"}, attached: []string{"-i", "-o", "-e", "--input=", "--output=", "--error="}},
	"setsid":      {flags: []string{"-c", "--ctty", "-f", "--fork", "-w", "--wait", "-fw", "-wf"}},
	"time":        {values: []string{"-f", "--format", "-o", "--output"}, flags: []string{"-a", "--append", "-p", "--portability", "-v", "--verbose", "-q", "--quiet"}, attached: []string{"--format=", "--output="}},
	"chrt":        {values: []string{"-T", "-P", "-D", "--sched-runtime", "--sched-period", "--sched-deadline"}, flags: []string{"-a", "-b", "-d", "-f", "-i", "-o", "-r", "-v", "-R", "--batch", "--fifo", "--idle", "--other", "--rr", "--deadline", "--reset-on-fork"}, before: 1},
	"taskset":     {flags: []string{"-a", "--all-tasks", "-c", "--cpu-list", "-ac"}, before: 1},
	"numactl":     {any: true},
	"sudo":        {values: []string{"-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "--close-from", "-r", "--role", "-t", "--type", "-T", "--command-timeout", "-U", "--other-user", "-D", "--chdir", "-R", "--chroot"}, flags: []string{"-n", "--non-interactive", "-E", "--preserve-env", "-H", "--set-home", "-S", "--stdin", "-b", "--background", "-A", "--askpass", "-k", "--reset-timestamp", "-P", "--preserve-groups", "-B", "--bell", "-N", "-i", "--login", "-s", "--shell", "-nE", "-En", "-EH", "-HE", "-nH"}, attached: []string{"--user=", "--group=", "--host=", "--prompt=", "--close-from=", "--preserve-env=", "--chdir=", "--chroot=", "--command-timeout="}, assigns: true, shell: true, query: []string{"-l", "--list", "-v", "--validate", "-e", "--edit", "-V", "--version", "-K"}},
	"doas":        {values: []string{"-u", "-C"}, flags: []string{"-n", "-s", "-L"}, shell: true},
	"su":          {any: true, text: []string{"-c", "--command"}, shell: true},
	"runuser":     {any: true, text: []string{"-c", "--command"}, shell: true},
	"pkexec":      {values: []string{"--user"}, flags: []string{"--disable-internal-agent", "--keep-cwd"}, shell: true},
	"gosu":        {before: 1},
	"su-exec":     {before: 1},
	"setpriv":     {any: true},
	"capsh":       {any: true},
	"unshare":     {any: true, shell: true},
	"nsenter":     {any: true, shell: true},
	"chroot":      {flags: []string{"--skip-chdir"}, attached: []string{"--userspec=", "--groups="}, before: 1, shell: true},
	"bwrap":       {any: true},
	"firejail":    {any: true, shell: true},
	"proot":       {any: true, shell: true},
	"fakeroot":    {values: []string{"-l", "--lib", "-s", "-i", "-b", "--faked"}, flags: []string{"-u", "--unknown-is-real"}, shell: true},
	"fakechroot":  {any: true},
	"systemd-run": {any: true}, "systemd-inhibit": {any: true},
	"strace": {any: true}, "ltrace": {any: true}, "gdb": {any: true}, "valgrind": {any: true}, "perf": {any: true}, "catchsegv": {},
	"rr": {any: true}, "heaptrack": {any: true}, "uftrace": {any: true}, "bpftrace": {any: true},
	"prlimit": {any: true}, "ulimit": {query: []string{"-a"}}, "cpulimit": {any: true}, "trickle": {any: true}, "cgexec": {values: []string{"-g"}, flags: []string{"--sticky"}},
	"setarch": {any: true}, "linux32": {any: true}, "linux64": {any: true}, "i386": {any: true}, "x86_64": {any: true},
	"dbus-run-session": {any: true}, "dbus-launch": {any: true}, "xvfb-run": {any: true}, "ssh-agent": {any: true}, "flatpak-spawn": {any: true},
	"script":  {any: true, text: []string{"-c", "--command"}, shell: true},
	"flock":   {values: []string{"-w", "--wait", "--timeout", "-E", "--conflict-exit-code"}, flags: []string{"-s", "--shared", "-x", "-e", "--exclusive", "-u", "--unlock", "-n", "--nb", "--nonblock", "-o", "--close", "-F", "--no-fork", "--verbose"}, attached: []string{"--wait=", "--timeout=", "--conflict-exit-code="}, before: 1, text: []string{"-c", "--command"}},
	"lockrun": {any: true}, "setlock": {any: true}, "softlimit": {any: true}, "envdir": {before: 1}, "envuidgid": {before: 1}, "setuidgid": {before: 1}, "chpst": {any: true},
	"watch": {values: []string{"-n", "--interval", "-q", "--equexit"}, flags: []string{"-b", "--beep", "-c", "--color", "-C", "-d", "--differences", "-e", "--errexit", "-g", "--chgexit", "-p", "--precise", "-r", "-t", "--no-title", "-w", "-x", "--exec"}, attached: []string{"-n", "--interval=", "-d=", "--differences="}, joins: true},
	"retry": {any: true}, "chronic": {flags: []string{"-v", "-e", "-ev"}}, "ifne": {flags: []string{"-n"}}, "eatmydata": {}, "nocache": {}, "unbuffer": {flags: []string{"-p"}}, "rlwrap": {any: true},
	"torsocks": {any: true}, "torify": {}, "proxychains": {any: true}, "proxychains4": {any: true}, "tsocks": {},
	"tini": {any: true}, "dumb-init": {any: true}, "catatonit": {any: true}, "faketime": {any: true}, "direnv": {any: true}, "dotenv": {any: true}, "entr": {any: true},
	"parallel": {any: true, joins: true, shell: true}, "sem": {any: true, joins: true, shell: true}, "corepack": {any: true}, "rust-parallel": {any: true},
	"ccache": {any: true}, "sccache": {any: true}, "distcc": {any: true}, "bear": {any: true},
	"npx": {any: true}, "bunx": {any: true}, "uvx": {any: true},
	"uv": {any: true, sub: []string{"run"}}, "poetry": {any: true, sub: []string{"run"}}, "pipenv": {any: true, sub: []string{"run"}}, "pdm": {any: true, sub: []string{"run"}}, "hatch": {any: true, sub: []string{"run"}}, "rye": {any: true, sub: []string{"run"}},
	"bundle": {any: true, sub: []string{"exec"}}, "npm": {any: true, sub: []string{"exec", "x"}}, "pnpm": {any: true, sub: []string{"exec", "dlx"}}, "yarn": {any: true, sub: []string{"exec", "dlx"}}, "bun": {any: true, sub: []string{"x", "exec"}},
	"rustup": {any: true, sub: []string{"run"}}, "mise": {any: true, sub: []string{"exec", "x"}}, "asdf": {any: true, sub: []string{"exec"}}, "rbenv": {any: true, sub: []string{"exec"}}, "pyenv": {any: true, sub: []string{"exec"}}, "nvm": {any: true, sub: []string{"exec", "run"}}, "conda": {any: true, sub: []string{"run"}}, "mamba": {any: true, sub: []string{"run"}}, "opam": {any: true, sub: []string{"exec"}}, "nix": {any: true, sub: []string{"run", "shell", "develop"}}, "nix-shell": {any: true, text: []string{"--run", "--command"}},
}

// textOptions are options of programs that are no wrappers but run their value
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
	case "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS3", "PS4", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_EXTERNAL_DIFF", "GIT_ASKPASS", "GIT_PROXY_COMMAND",
		"EDITOR", "VISUAL", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "BROWSER", "SSH_ASKPASS", "SUDO_EDITOR", "SUDO_ASKPASS", "FCEDIT", "RSYNC_RSH", "CVS_RSH", "TAR_OPTIONS":
		return runsText
	case "BASH_ENV", "ENV", "GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG", "GIT_TEMPLATE_DIR",
		"LD_PRELOAD", "LD_AUDIT", "SHELLOPTS", "BASHOPTS":
		return changesMeaning
	}
	if len(name) > 11 && name[:11] == "GIT_CONFIG_" {
		return changesMeaning
	}
	if len(name) > 10 && name[:10] == "BASH_FUNC_" {
		return changesMeaning
	}
	return ordinary
}
