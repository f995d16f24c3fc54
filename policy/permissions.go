package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// protectedNames stay read-only inside every writable root.
var protectedNames = []string{".git", ".codex", ".agents", ".aws"}

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

// Permissions is what a command in dir may touch. dir is absolute; the writable
// workspace is always the run's working folder. An error is a deny pattern that
// matches too much to be enforced.
func (p *Policy) Permissions(dir string) (Permissions, error) {
	c := &p.config
	out := Permissions{Mode: c.SandboxMode, Workspace: p.src.Cwd, Sandbox: c.Sandbox, ProtectNames: slices.Concat(protectedNames, p.protect)}
	out.Network = NetworkPermissions{Mode: p.networkMode(), UnixSockets: slices.Clone(c.Sandbox.Network.UnixSockets)}
	if c.SandboxMode == "danger-full-access" {
		out.ProtectNames = nil
		return out, nil
	}
	if c.SandboxMode == "workspace-write" {
		out.Write = slices.Clone(p.write)
	}
	deny, err := p.denied()
	if err != nil {
		return Permissions{}, err
	}
	for _, d := range deny {
		if within(p.src.Cwd, d) || within(dir, d) {
			return Permissions{}, &Error{
				Key:      "deny_read",
				Message:  fmt.Sprintf("deny_read %q holds the folder that commands run in", d),
				HintText: "deny paths inside it, or run elsewhere",
				Kind:     KindPolicy,
			}
		}
	}
	for _, d := range slices.Concat(SecretPaths(p.src.UserHome), codexSecretPaths(p.src.Home), p.profileFiles()) {
		// A workspace below such a folder is the user's wish.
		if !within(p.src.Cwd, d) && !within(dir, d) {
			deny = append(deny, d)
		}
	}
	slices.Sort(deny)
	out.Deny = slices.Compact(deny)
	return out, nil
}

// networkMode is how commands reach the network.
func (p *Policy) networkMode() string {
	c := &p.config
	switch {
	case c.SandboxMode == "danger-full-access":
		return "host"
	case c.Sandbox.NetworkAccess:
		return "host"
	case c.Sandbox.Network.Enabled:
		return "proxy"
	}
	return "off"
}

// profileFiles are the configuration profiles, which may hold tokens.
func (p *Policy) profileFiles() []string {
	entries, err := p.src.Files.ReadDir(p.src.Home)
	if err != nil {
		return nil // no folder, no files
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".config.toml") {
			out = append(out, filepath.Join(p.src.Home, e.Name()))
		}
	}
	return out
}

// maxDenied bounds the paths that patterns may match.
const maxDenied = 10_000

// denied lists the paths of deny_read, patterns expanded to what exists now.
func (p *Policy) denied() ([]string, error) {
	var out []string
	matched := 0
	for _, d := range p.config.Sandbox.DenyRead {
		if !strings.ContainsAny(d, "*?[{") {
			out = append(out, d)
			continue
		}
		walk := func(base, pattern string) error {
			return doublestar.GlobWalk(dirFS{p.src.Files, base}, pattern, func(path string, _ dirEntry) error {
				if matched++; matched > maxDenied {
					return fmt.Errorf("deny_read %q matches more than %d paths, which cannot be enforced: name folders instead", d, maxDenied)
				}
				out = append(out, filepath.Join(base, path))
				return nil
			}, doublestar.WithNoFollow())
		}
		base, pattern := doublestar.SplitPattern(d)
		literal, rest := p.literalPart(d)
		var err error
		switch {
		case rest == "":
			out = append(out, d)
		case len(literal) > len(base):
			err = walk(literal, rest)
		}
		// What is there under that very name need not be a pattern at all.
		if err == nil && (doublestar.ValidatePattern(d) || len(literal) <= len(base)) {
			err = walk(base, pattern)
		}
		if err != nil {
			return nil, fmt.Errorf("deny_read %q: %w", d, err)
		}
	}
	return out, nil
}

// literalPart splits an entry of deny_read into the folders that exist under the
// very names it gives, and the rest. Names may hold what patterns are made of, as
// the routes of web frameworks do (app/[slug]): both readings are denied.
func (p *Policy) literalPart(d string) (literal, rest string) {
	literal, rest = "/", strings.Trim(d, "/")
	for rest != "" {
		name, after, _ := strings.Cut(rest, "/")
		next := filepath.Join(literal, name)
		if _, err := p.src.Files.Stat(next); err != nil {
			break
		}
		literal, rest = next, after
	}
	return literal, rest
}

// badDenyPath is what is wrong with a deny_read entry, "" if nothing is.
func (ld *loader) badDenyPath(path string) string {
	switch {
	case path == "":
		return "is empty"
	case strings.ContainsRune(path, 0):
		return "holds a NUL byte"
	case !doublestar.ValidatePattern(path):
		return "is not a valid pattern"
	case filepath.Clean(ld.expandHome(path)) == "/":
		return "would deny everything"
	}
	return ""
}

// sandbox fills SandboxConfig but for the network.
func (b *builder) sandbox() {
	s := &b.cfg.Sandbox
	s.ExcludeSlashTmp = b.boolean(false, "sandbox_workspace_write", "exclude_slash_tmp")
	s.ExcludeTmpdir = b.boolean(false, "sandbox_workspace_write", "exclude_tmpdir_env_var")
	if b.cfg.SandboxMode == "workspace-write" {
		s.WritableRoots = b.writableRoots()
	} else if len(b.src.Flags.AddDirs) > 0 && b.cfg.SandboxMode == "read-only" {
		b.notice(Notice{Class: "add_dir_unused", Origin: "--add-dir",
			Message: "--add-dir has no effect: the sandbox is read-only",
			Hint:    "add -s workspace-write"})
	}
	if b.profile != nil {
		b.protect = b.profile.protect
		s.ExcludeSlashTmp = s.ExcludeSlashTmp || b.profile.noTmp
		s.ExcludeTmpdir = s.ExcludeTmpdir || b.profile.noTmp
	}
	s.HostTmp = b.boolean(false, "sandbox", "host_tmp")
	s.PrivateCaches = b.boolean(true, "sandbox", "private_caches")
	size := func(key string) int64 {
		v := b.root.get("sandbox", key)
		if v == nil {
			return 0
		}
		n, err := sizeOf(v)
		if err != nil {
			b.wrong(v, "sandbox."+key, err.Error(), "") // check has seen it before
		}
		return n
	}
	s.MemoryBytes, s.FileBytes = size("memory"), size("file_size")
	s.Processes, s.CPUPercent = b.integer(0, "sandbox", "processes"), b.integer(0, "sandbox", "cpu")
	s.AllowUnsandboxed = b.q.unsandboxed != nil
	b.denyRead()
	b.guarantees()
}

func (b *builder) writableRoots() []string {
	if b.profile == nil {
		return unique(slices.Concat(b.paths("sandbox_workspace_write", "writable_roots"), b.addDirs()))
	}
	var roots []string
	for _, w := range b.profile.write {
		if w == "" {
			roots = append(roots, b.profile.roots...)
			continue
		}
		roots = append(roots, w)
	}
	return unique(append(roots, b.addDirs()...))
}

func (b *builder) addDirs() []string {
	var out []string
	for _, d := range b.src.Flags.AddDirs {
		out = append(out, b.resolve(d, nil))
	}
	return out
}

// workspaceWritable tells whether the working folder itself may be written.
func (b *builder) workspaceWritable() bool {
	return b.cfg.SandboxMode == "workspace-write" && (b.profile == nil || slices.Contains(b.profile.write, ""))
}

// denyRead joins the denied paths of every source.
func (b *builder) denyRead() {
	s := &b.cfg.Sandbox
	var required []*node
	for _, d := range b.q.denyRead {
		required = append(required, d.items...)
	}
	configured := b.root.get("sandbox", "deny_read")
	full := b.cfg.SandboxMode == "danger-full-access"
	if full && len(required) > 0 {
		b.violated(required[0], "deny_read",
			fmt.Sprintf("deny_read cannot be enforced under danger-full-access (set by %s)", required[0].origin()),
			"use another sandbox mode")
	}
	if full && configured != nil && len(configured.items) > 0 {
		b.wrong(configured, "sandbox.deny_read",
			"sandbox.deny_read cannot be enforced under danger-full-access",
			"use another sandbox mode, or remove it")
	}
	add := func(v *node) {
		if message := b.badDenyPath(v.text); message != "" {
			b.fail(problem{at: v, key: "deny_read", message: fmt.Sprintf("deny_read %q %s", v.text, message)}.err(kindAt(v)))
			return
		}
		s.DenyRead = append(s.DenyRead, b.resolve(v.text, v.layer))
	}
	for _, v := range required {
		add(v)
	}
	if configured != nil {
		for _, v := range configured.items {
			add(v)
		}
	}
	for _, d := range b.src.Flags.DenyRead {
		s.DenyRead = append(s.DenyRead, b.resolve(d, nil))
	}
	if b.profile != nil {
		for _, v := range b.profile.deny {
			add(v)
		}
		for _, v := range b.profile.relative {
			for _, root := range append([]string{b.src.Cwd}, b.profile.roots...) {
				if v.text != "." {
					s.DenyRead = append(s.DenyRead, filepath.Join(root, v.text))
				}
			}
		}
	}
	s.DenyRead = unique(s.DenyRead)
	if slices.ContainsFunc(s.DenyRead, func(d string) bool { return strings.ContainsAny(d, "*?[{") }) {
		b.notice(Notice{Class: "deny_read_pattern",
			Message: "deny_read patterns cover the files that exist when a command starts; a file made while it runs is not covered until the next one"})
	}
}

// andThe makes a list the beginning of a sentence.
func andThe(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + " are"
}

// guarantees joins what must hold before the run may start. A configuration can
// add to the default set; doing without part of it needs leave from the
// requirements.
func (b *builder) guarantees() {
	s := &b.cfg.Sandbox
	configured := b.root.get("sandbox", "require")
	var names []string
	if configured != nil {
		asked := stringsOf(configured)
		var kept []string
		for _, g := range guarantees[:len(guarantees)-1] {
			if !slices.Contains(asked, g) && !slices.Contains(b.q.mayDrop, g) {
				kept = append(kept, g)
			}
		}
		if len(kept) > 0 {
			names = append(names, kept...)
			b.notice(Notice{Class: "guarantee_kept", Origin: configured.origin(),
				Message: fmt.Sprintf("%s%s required besides: only sandbox.may_drop in requirements can do without a default guarantee", place(configured), andThe(kept))})
		}
		names = append(names, asked...)
	} else if len(b.q.require) > 0 {
		names = slices.Clone(guarantees[:len(guarantees)-1])
	}
	for _, r := range b.q.require {
		names = append(names, stringsOf(r)...)
		if b.cfg.SandboxMode == "danger-full-access" {
			b.violated(r, "sandbox.require",
				fmt.Sprintf("danger-full-access gives no guarantee, and requirements ask for %s (set by %s)", strings.Join(stringsOf(r), ", "), r.origin()),
				"use another sandbox mode")
		}
	}
	for _, g := range guarantees {
		if slices.Contains(names, g) {
			s.Require = append(s.Require, g)
		}
	}
	s.Degrade = b.list("sandbox", "degrade")
	at := b.root.get("sandbox", "degrade")
	for _, d := range s.Degrade {
		if !b.q.degrade.has(d) {
			b.violated(at, "sandbox.degrade",
				fmt.Sprintf("sandbox.degrade %q is not allowed by requirements: sandbox.allowed_degrade is [%s] (set by %s)", d, strings.Join(b.q.degrade.values, ", "), b.q.degrade.origin()),
				"")
		}
	}
}
