package skill

import (
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// maxListing bounds what the list may take of every prompt.
const maxListing = 24 << 10

// Listing is the <skills_instructions> text of the developer message, "" when
// there are no skills. Skills that do not fit are counted in it.
func Listing(skills []Skill) string {
	if len(skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(`<skills_instructions>
## Skills
A skill is a folder with instructions for one kind of work, kept in a file named SKILL.md. These are available:
`)
	for i, s := range skills {
		entry := fmt.Sprintf("- %s: %s (file: %s)\n", s.Name, s.Description, s.Path)
		if b.Len()+len(entry) > maxListing {
			fmt.Fprintf(&b, "- and %d more that are not listed here\n", len(skills)-i)
			break
		}
		b.WriteString(entry)
	}
	b.WriteString(`
When the user writes $name, or the task is plainly what a description says, read that SKILL.md to its end before you start and follow it for this task. Paths in it are relative to its folder; open further files of the folder only when it tells you to, and run its scripts rather than writing them again. If a skill cannot be used, say why in one sentence and go on without it.
</skills_instructions>`)
	return b.String()
}

// Mentioned returns, for each skill that the prompt names as $name, the text of
// a user message that holds the whole SKILL.md, in order of first mention. A
// skill that can no longer be read gives a notice. Other words after a dollar
// sign, such as shell variables, mean nothing.
func Mentioned(prompt string, skills []Skill) ([]string, []event.Notice) {
	var out []string
	var notices []event.Notice
	for _, s := range named(prompt, skills) {
		text, err := read(s.Path)
		if err != nil {
			notices = append(notices, event.Notice{
				Class: "skill_unreadable", Origin: s.Path,
				Message: fmt.Sprintf("the prompt names $%s, but %s cannot be read: %v", s.Name, s.Path, reason(err)),
			})
			continue
		}
		out = append(out, "<skill>\n<name>"+s.Name+"</name>\n<path>"+s.Path+"</path>\n"+text+"\n</skill>")
	}
	return out, notices
}

// named finds the skills whose $name stands in the prompt as a word.
func named(prompt string, skills []Skill) []Skill {
	byName := map[string]Skill{}
	for _, s := range skills {
		byName[s.Name] = s
	}
	var found []Skill
	for i := 0; i < len(prompt); i++ {
		if prompt[i] != '$' || i > 0 && (isNameByte(prompt[i-1]) || prompt[i-1] == '$' || prompt[i-1] == '\\') {
			continue
		}
		end := i + 1
		for end < len(prompt) && isNameByte(prompt[end]) {
			end++
		}
		word := strings.TrimRight(prompt[i+1:end], "-_:")
		if s, ok := byName[word]; ok {
			found = append(found, s)
			delete(byName, word)
		}
	}
	return found
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == ':'
}
