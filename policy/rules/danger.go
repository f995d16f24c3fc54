package rules

import "strings"

// danger is the built-in rule: rm with force is refused unless an allow rule
// names it. It looks as deep as the other rules do, so wrappers, quoting and
// nested shells do not hide it; like the reference's it leaves other programs
// that delete (find -delete, git clean) to the sandbox.
func danger(c command) string {
	if len(c.words) == 0 || c.words[0].base() != "rm" {
		return ""
	}
	for _, w := range c.words[1:] {
		if !w.known || len(w.text) < 2 || w.text[0] != '-' {
			continue
		}
		switch {
		case w.text == "--":
			return ""
		case strings.HasPrefix(w.text, "--"):
			// rm accepts any unambiguous beginning of --force.
			if strings.HasPrefix("--force", w.text) {
				return "`" + c.String() + "` deletes without asking"
			}
		case strings.Contains(w.text, "f"):
			return "`" + c.String() + "` deletes without asking"
		}
	}
	return ""
}
