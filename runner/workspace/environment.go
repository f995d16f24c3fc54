package workspace

import (
	"encoding/xml"
	"path/filepath"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Environment tells the model where it works.
type Environment struct {
	Cwd      string
	Shell    string // name of the shell: "bash"
	Date     time.Time
	Timezone string // IANA name; "" is left out
	Mode     sandbox.Mode
	// Writable are the writable roots besides Cwd (workspace-write).
	Writable []string
	// SlashTmp and TmpDir: /tmp and $TMPDIR are writable.
	SlashTmp, TmpDir bool
	// Protect are the names that stay read-only in every writable root.
	Protect []string
	// DenyRead are paths that cannot be read.
	DenyRead []string
	// Network tells whether commands reach a network at all; the reference's
	// text has no place for it, the permissions message does.
	Network bool
}

// Text is the <environment_context> part of the first user message, in the
// reference's form.
func (e Environment) Text() string {
	var b strings.Builder
	b.WriteString("<environment_context>\n")
	line := func(tag, text string) {
		if text != "" {
			b.WriteString("  <" + tag + ">" + escape(text) + "</" + tag + ">\n")
		}
	}
	line("cwd", e.Cwd)
	line("shell", e.Shell)
	line("current_date", e.Date.Format(time.DateOnly))
	line("timezone", e.Timezone)
	b.WriteString("  " + e.filesystem() + "\n</environment_context>")
	return b.String()
}

func (e Environment) filesystem() string {
	var b strings.Builder
	roots := append([]string{e.Cwd}, e.Writable...)
	if e.Mode != sandbox.WorkspaceWrite {
		roots = roots[:1]
	}
	b.WriteString("<filesystem><workspace_roots>")
	for _, r := range roots {
		b.WriteString("<root>" + escape(r) + "</root>")
	}
	b.WriteString("</workspace_roots>")
	if e.Mode == sandbox.FullAccess {
		b.WriteString(`<permission_profile type="disabled"><file_system type="unrestricted" /></permission_profile></filesystem>`)
		return b.String()
	}
	entry := func(access, what string) { b.WriteString(`<entry access="` + access + `">` + what + `</entry>`) }
	special := func(name string) string { return "<special>:" + name + "</special>" }
	path := func(p string) string { return "<path>" + escape(p) + "</path>" }
	b.WriteString(`<permission_profile type="managed"><file_system type="restricted">`)
	entry("read", special("root"))
	if e.Mode == sandbox.WorkspaceWrite {
		for _, r := range roots {
			entry("write", path(r))
		}
		if e.SlashTmp {
			entry("write", special("slash_tmp"))
		}
		if e.TmpDir {
			entry("write", special("tmpdir"))
		}
		for _, name := range e.Protect {
			for _, r := range roots {
				entry("read", path(filepath.Join(r, name)))
			}
		}
	}
	for _, p := range e.DenyRead {
		entry("none", path(p))
	}
	b.WriteString("</file_system></permission_profile></filesystem>")
	return b.String()
}

func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return "" // a strings.Builder does not fail
	}
	return b.String()
}
