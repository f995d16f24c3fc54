package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A placeholder in a string of an item:
//
//	{{capture:REGEX}}          group 1 of the last match in the tool outputs of
//	                           the request that is being answered
//	{{capture@CALL_ID:REGEX}}  the same, in the outputs of that call only
//
// A string that is one placeholder and nothing else becomes a JSON number when
// the captured text is one.
type placeholder struct {
	start, end int // in the string
	callID     string
	re         *regexp.Regexp
}

const (
	captureOpen  = "{{capture"
	captureClose = "}}"
)

var errNoCapture = errors.New("nothing in the tool outputs matches")

// stringPlaceholders finds the placeholders of one string.
func stringPlaceholders(s string) ([]placeholder, error) {
	var out []placeholder
	for at := 0; ; {
		i := strings.Index(s[at:], captureOpen)
		if i < 0 {
			return out, nil
		}
		start := at + i
		rest := s[start+len(captureOpen):]
		end := closing(rest)
		if end < 0 {
			return nil, fmt.Errorf("placeholder %q has no end", excerpt(s[start:], 60))
		}
		p := placeholder{start: start, end: start + len(captureOpen) + end + len(captureClose)}
		selector, expr, ok := strings.Cut(rest[:end], ":")
		if !ok || selector != "" && selector[0] != '@' {
			return nil, fmt.Errorf("placeholder %q is not {{capture:REGEX}} or {{capture@CALL_ID:REGEX}}", s[p.start:p.end])
		}
		p.callID = strings.TrimPrefix(selector, "@")
		re, err := regexp.Compile(expr)
		if err != nil {
			return nil, fmt.Errorf("placeholder %q: %w", s[p.start:p.end], err)
		}
		if re.NumSubexp() < 1 {
			return nil, fmt.Errorf("placeholder %q has no group to capture", s[p.start:p.end])
		}
		p.re = re
		out = append(out, p)
		at = p.end
	}
}

// closing finds the end of a placeholder: the first }} that leaves no brace of
// the expression open, so that (\d{2})}} and (\d{2}}}) both end where they seem to.
func closing(s string) int {
	for at := 0; ; at++ {
		i := strings.Index(s[at:], captureClose)
		if i < 0 {
			return -1
		}
		at += i
		if strings.Count(s[:at], "{") == strings.Count(s[:at], "}") {
			return at
		}
	}
}

// placeholders checks all strings of a JSON text.
func placeholders(raw []byte) (bool, error) {
	if !bytes.Contains(raw, []byte(captureOpen)) {
		return false, nil
	}
	found := false
	_, err := eachString(raw, func(s string) (json.RawMessage, error) {
		ps, err := stringPlaceholders(s)
		found = found || len(ps) > 0
		return nil, err
	})
	return found, err
}

// fill replaces the placeholders in a JSON text.
func fill(raw json.RawMessage, outputs []toolOutput) (json.RawMessage, error) {
	if !bytes.Contains(raw, []byte(captureOpen)) {
		return raw, nil
	}
	return eachString(raw, func(s string) (json.RawMessage, error) {
		ps, err := stringPlaceholders(s)
		if err != nil || len(ps) == 0 {
			return nil, err
		}
		var b strings.Builder
		at := 0
		for _, p := range ps {
			got, err := p.find(outputs)
			if err != nil {
				return nil, fmt.Errorf("placeholder %s: %w", s[p.start:p.end], err)
			}
			b.WriteString(s[at:p.start])
			b.WriteString(got)
			at = p.end
		}
		b.WriteString(s[at:])
		text := b.String()
		if len(ps) == 1 && ps[0].start == 0 && ps[0].end == len(s) && isNumber(text) {
			return json.RawMessage(text), nil
		}
		return plainJSON(text), nil
	})
}

func (p placeholder) find(outputs []toolOutput) (string, error) {
	for i := len(outputs) - 1; i >= 0; i-- {
		if p.callID != "" && outputs[i].callID != p.callID {
			continue
		}
		all := p.re.FindAllStringSubmatch(outputs[i].text, -1)
		if len(all) > 0 {
			return all[len(all)-1][1], nil
		}
	}
	return "", errNoCapture
}

func isNumber(s string) bool {
	var n json.Number
	return s != "" && s[0] != '"' && json.Unmarshal([]byte(s), &n) == nil && n != ""
}

// eachString calls f with every string of a JSON text, object keys included, and
// puts what f returns in its place; nil keeps it.
func eachString(raw []byte, f func(string) (json.RawMessage, error)) (json.RawMessage, error) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			out = append(out, raw[i])
			continue
		}
		end := i + 1
		for end < len(raw) && raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(raw) {
			return nil, errors.New("a string has no end")
		}
		literal := raw[i : end+1]
		var s string
		if err := json.Unmarshal(literal, &s); err != nil {
			return nil, err
		}
		with, err := f(s)
		if err != nil {
			return nil, err
		}
		if with == nil {
			with = literal
		}
		out = append(out, with...)
		i = end
	}
	return out, nil
}

// toolOutput is what a tool call gave back, as text.
type toolOutput struct{ callID, text string }

// toolOutputs finds the tool outputs in the input of a request's body.
func toolOutputs(input []json.RawMessage) []toolOutput {
	var out []toolOutput
	for _, raw := range input {
		var it struct {
			Type   string          `json:"type"`
			CallID string          `json:"call_id"`
			Output json.RawMessage `json:"output"`
		}
		if json.Unmarshal(raw, &it) != nil || it.Type != "function_call_output" && it.Type != "custom_tool_call_output" {
			continue
		}
		out = append(out, toolOutput{it.CallID, outputText(it.Output)})
	}
	return out
}

// outputText is the text of an output: a string, or the text parts of a list.
func outputText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}
