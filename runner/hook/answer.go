package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// said is what one hook says.
type said struct {
	blocked, ended bool
	reason         string
	context        string
	input          json.RawMessage
	output         string
	replaced       bool
}

// answer is the JSON a hook may print. Keys that are not listed here are an
// error: a misspelt "deny" must not read as a yes.
type answer struct {
	Continue       *bool     `json:"continue"`
	StopReason     string    `json:"stopReason"`
	SuppressOutput bool      `json:"suppressOutput"`
	SystemMessage  string    `json:"systemMessage"`
	Decision       string    `json:"decision"`
	Reason         string    `json:"reason"`
	Specific       *specific `json:"hookSpecificOutput"`
}

type specific struct {
	Event    string          `json:"hookEventName"`
	Decision string          `json:"permissionDecision"`
	Reason   string          `json:"permissionDecisionReason"`
	Input    json.RawMessage `json:"updatedInput"`
	Context  string          `json:"additionalContext"`
}

// read understands a hook that ended by itself. An error means that it gave no
// clear answer.
func read(event string, code int, stdout, stderr string) (said, error) {
	switch code {
	case 0:
		return readOutput(event, strings.TrimSpace(stdout))
	case 2:
		return readRefusal(event, strings.TrimSpace(stderr))
	}
	why := fmt.Sprintf("exit code %d", code)
	if text := strings.TrimSpace(stderr); text != "" {
		why += ": " + text
	}
	return said{}, errors.New(why)
}

// readRefusal is exit code 2: the text on stderr is the reason.
func readRefusal(event, text string) (said, error) {
	switch event {
	case PreToolUse, PermissionRequest, UserPromptSubmit:
		if text == "" {
			text = "the hook gave no reason"
		}
		return said{blocked: true, reason: text}, nil
	case Stop:
		if text == "" {
			return said{}, errors.New("exit code 2 without a text on stderr for the model")
		}
		return said{blocked: true, reason: text}, nil
	case PostToolUse:
		if text == "" {
			return said{}, errors.New("exit code 2 without a text on stderr for the model")
		}
		return said{replaced: true, output: text}, nil
	}
	return said{}, fmt.Errorf("exit code 2: %s", text)
}

func readOutput(event, text string) (said, error) {
	if text == "" {
		return said{}, nil
	}
	if text[0] != '{' {
		switch event {
		case SessionStart, UserPromptSubmit:
			return said{context: text}, nil
		case Stop:
			return said{}, errors.New("its output is not JSON")
		}
		return said{}, nil // a remark
	}
	var a answer
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return said{}, fmt.Errorf("its output cannot be read: %w", err)
	}
	if _, err := d.Token(); err != io.EOF { // More would take a closing bracket for the end
		return said{}, errors.New("its output goes on after the JSON object")
	}
	return a.judge(event)
}

// judge turns the answer into what it means at an event.
func (a answer) judge(event string) (said, error) {
	s := a.Specific
	if s == nil {
		s = &specific{Event: event}
	}
	if s.Event != event {
		return said{}, fmt.Errorf("its hookEventName is %q and not %q", s.Event, event)
	}
	if a.Continue != nil && !*a.Continue {
		reason := first(a.StopReason, a.Reason, "the hook gave no reason")
		if event == PostToolUse {
			return said{replaced: true, output: reason}, nil
		}
		return said{ended: true, reason: reason}, nil
	}
	out := said{context: s.Context}
	block, err := a.blocks(event, s)
	if err != nil {
		return said{}, err
	}
	if block {
		reason := first(a.Reason, s.Reason, "the hook gave no reason")
		if event == PostToolUse {
			out.replaced, out.output = true, reason
			return out, nil
		}
		out.blocked, out.reason = true, reason
		return out, nil
	}
	if len(s.Input) > 0 && string(s.Input) != "null" {
		if event != PreToolUse {
			return said{}, fmt.Errorf("updatedInput means nothing at %s", event)
		}
		if bytes.TrimSpace(s.Input)[0] != '{' {
			return said{}, errors.New("its updatedInput is not an object")
		}
		out.input = s.Input
	}
	return out, nil
}

// blocks reads both ways of refusing. A word that is none of the known ones is
// an error, as is "ask": there is nobody to ask.
func (a answer) blocks(event string, s *specific) (bool, error) {
	block := false
	switch a.Decision {
	case "", "approve":
	case "block":
		block = true
	default:
		return false, fmt.Errorf("its decision is %q", a.Decision)
	}
	switch s.Decision {
	case "", "allow":
	case "deny":
		if event != PreToolUse && event != PermissionRequest {
			return false, fmt.Errorf("permissionDecision means nothing at %s", event)
		}
		block = true
	case "ask":
		return false, errors.New("it asks for a decision, and nobody is there to decide")
	default:
		return false, fmt.Errorf("its permissionDecision is %q", s.Decision)
	}
	return block, nil
}

func first(texts ...string) string {
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			return t
		}
	}
	return ""
}
