package main

import (
	"os"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/cmd/nightshift/early"
	"github.com/nightshift-ci/nightshift/policy"
)

// The reference's command line is not quite what a grammar library reads: exec
// takes a prompt and has subcommands, some options may stand before the word
// "exec", -i takes several values, and a repeated single option is an error.
// normalize turns all that into plain words.

// flagShape says how an option of exec is read.
type flagShape struct {
	value    bool // takes a value
	repeat   bool // may be given more than once
	variadic bool // takes following words too
	front    bool // may stand before "exec"
}

// execShapes are the options whose shape normalize must know. Options that are
// not here are left to the grammar.
var execShapes = map[string]flagShape{
	"--config": {value: true, repeat: true, front: true}, "--enable": {value: true, repeat: true, front: true},
	"--disable": {value: true, repeat: true, front: true}, "--image": {value: true, repeat: true, variadic: true, front: true},
	"--model": {value: true, front: true}, "--profile": {value: true, front: true}, "--sandbox": {value: true, front: true},
	"--cd": {value: true, front: true}, "--add-dir": {value: true, repeat: true, front: true},
	"--local-provider": {value: true, front: true}, "--thread-source": {value: true}, "--cyber-access-program": {value: true},
	"--output-schema": {value: true}, "--color": {value: true}, "--output-last-message": {value: true},
	"--remote": {value: true}, "--remote-auth-token-env": {value: true}, "--base": {value: true}, "--commit": {value: true},
	"--title": {value: true}, "--ask-for-approval": {value: true, front: true},
	"--json": {}, "--oss": {front: true}, "--strict-config": {front: true}, "--approve-for-me": {front: true},
	"--dangerously-bypass-approvals-and-sandbox": {front: true}, "--dangerously-bypass-hook-trust": {front: true},
	"--skip-git-repo-check": {}, "--trust": {}, "--ephemeral": {}, "--ignore-user-config": {}, "--ignore-rules": {},
	"--worktree": {}, "--last": {}, "--all": {}, "--uncommitted": {}, "--search": {front: true}, "--full-auto": {},
	"--events": {value: true}, "--report-dir": {value: true}, "--report": {value: true, repeat: true},
	"--prompt-file": {value: true}, "--model-script": {value: true}, "--record": {value: true},
	"--requirements": {value: true, repeat: true}, "--max-turns": {value: true}, "--max-tool-calls": {value: true},
	"--max-wall-time": {value: true}, "--max-idle-time": {value: true}, "--max-tokens": {value: true}, "--max-cost": {value: true},
	"--max-repeated-failures": {value: true}, "--model-fallback": {value: true, repeat: true}, "--verify": {value: true, repeat: true},
	"--verify-rounds": {value: true}, "--auth-writeback": {value: true}, "--instructions-from": {value: true},
	"--idle-prompt-wait": {value: true}, "--deny-read": {value: true, repeat: true}, "--allow-domain": {value: true, repeat: true}, "--fail-on": {value: true},
	"--strict": {}, "--no-final-answer": {}, "--api-key-stdin": {}, "--deterministic": {}, "--no-github": {},
	"--sign-key": {value: true}, "--log-level": {value: true},
}

var shortNames = map[string]string{
	"-c": "--config", "-i": "--image", "-m": "--model", "-p": "--profile", "-s": "--sandbox",
	"-C": "--cd", "-o": "--output-last-message", "-a": "--ask-for-approval",
}

var longAliases = map[string]string{"--experimental-json": "--json", "--yolo": "--dangerously-bypass-approvals-and-sandbox"}

// normalize rewrites args for the grammar: front options after the command,
// "exec [options] resume" as "resume", one value a flag.
func normalize(args []string) ([]string, error) {
	front, command, rest, err := splitCommand(args)
	if err != nil {
		return nil, err
	}
	if !early.IsRun(command) {
		if len(front) > 0 && command != "" {
			return nil, usageError("option %s does not go before %q", front[0], command)
		}
		return args, nil
	}
	sc := scan{command: command, seen: map[string]string{}}
	if sc.command == "e" {
		sc.command = "exec"
	}
	if err := sc.read(rest); err != nil {
		return nil, err
	}
	words := []string{sc.command}
	words = append(words, sc.withFront(front)...)
	if len(sc.positional) > 0 {
		words = append(words, "--")
		words = append(words, sc.positional...)
	}
	return words, nil
}

// splitCommand finds the command word and the options before it.
func splitCommand(args []string) (front []string, command string, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		w := args[i]
		if !strings.HasPrefix(w, "-") {
			return front, w, args[i+1:], nil
		}
		name, value, joined := splitFlag(w)
		shape, known := execShapes[name]
		if !known || w == "--" || w == "-" {
			return front, "", nil, nil // help, version, or the grammar's complaint
		}
		if !shape.front {
			return nil, "", nil, usageError("unexpected argument '%s' before the command; put it after `exec`", w)
		}
		if err := checkJoined(w, value, joined, shape); err != nil {
			return nil, "", nil, err
		}
		if shape.value && !joined {
			if value, err = nextValue(w, args, i); err != nil {
				return nil, "", nil, err
			}
			i++
		}
		if name == "--ask-for-approval" && !slices.Contains(policy.ApprovalPolicies[:], value) {
			return nil, "", nil, usageError("invalid value '%s' for '%s' [possible values: %s]", value, w, strings.Join(policy.ApprovalPolicies[:], ", "))
		}
		front = append(front, flagWord(name, value, shape.value))
	}
	return front, "", nil, nil
}

// splitFlag resolves aliases and splits "--a=b" and "-ab".
func splitFlag(w string) (name, value string, joined bool) {
	if strings.HasPrefix(w, "--") {
		name, value, joined = strings.Cut(w, "=")
		if full, ok := longAliases[name]; ok {
			name = full
		}
		return name, value, joined
	}
	if len(w) >= 2 {
		if full, ok := shortNames[w[:2]]; ok {
			if len(w) > 2 {
				return full, strings.TrimPrefix(w[2:], "="), true
			}
			return full, "", false
		}
	}
	return w, "", false
}

// nextValue is the word after an option that takes one. Another option is no
// value: a forgotten one would swallow it, "-o -s read-only" the sandbox.
func nextValue(option string, args []string, at int) (string, error) {
	if at+1 >= len(args) {
		return "", usageError("a value is required for '%s' but none was supplied", option)
	}
	value := args[at+1]
	if value == "" && named(option) {
		return "", usageError("the value of '%s' is empty; is it a variable that is not set?", option)
	}
	if len(value) > 1 && value[0] == '-' {
		return "", usageError("a value is required for '%s' but none was supplied; '%s' is another option, write %s=%s if it is meant", option, value, option, value)
	}
	return value, nil
}

// checkJoined refuses "--json=true" and "--model=".
func checkJoined(word, value string, joined bool, shape flagShape) error {
	switch {
	case joined && !shape.value:
		return usageError("unexpected value '%s' for '%s' found; no more were expected", value, strings.TrimSuffix(word, "="+value))
	case joined && value == "" && named(word):
		return usageError("the value of '%s' is empty; is it a variable that is not set?", strings.TrimSuffix(word, "="))
	}
	return nil
}

// named tells whether an option's value is a name or a path, which is never
// empty.
func named(option string) bool {
	switch name, _, _ := splitFlag(option); name {
	case "--model", "--profile", "--sandbox", "--cd", "--add-dir", "--output-last-message", "--output-schema", "--image",
		"--events", "--report-dir", "--prompt-file", "--model-script", "--record", "--requirements", "--sign-key", "--base", "--commit":
		return true
	}
	return false
}

func flagWord(name, value string, hasValue bool) string {
	if name == "--image" && strings.Contains(value, ",") && isFile(value) {
		value = strings.ReplaceAll(value, ",", `\,`) // a name with a comma, not a list
	}
	if hasValue {
		return name + "=" + value
	}
	return name
}

// scan reads the words after the command.
type scan struct {
	command    string
	flags      []string
	positional []string
	seen       map[string]string
	sub        bool
}

func (s *scan) read(args []string) error {
	for i := 0; i < len(args); i++ {
		w := args[i]
		if w == "--" {
			s.positional = append(s.positional, args[i+1:]...)
			return nil
		}
		if w == "-" || !strings.HasPrefix(w, "-") {
			s.word(w)
			continue
		}
		name, value, joined := splitFlag(w)
		shape, known := execShapes[name]
		if !known {
			s.flags = append(s.flags, w)
			continue
		}
		if name == "--ask-for-approval" {
			return usageError("unexpected argument '%s' found: nightshift never asks, so there is no approval flag after `exec`", w)
		}
		if err := checkJoined(w, value, joined, shape); err != nil {
			return err
		}
		if shape.value && !joined {
			var err error
			if value, err = nextValue(w, args, i); err != nil {
				return err
			}
			i++
		}
		if err := s.flag(name, value, shape); err != nil {
			return err
		}
		for shape.variadic && !s.sub && i+1 < len(args) && s.takesImage(args[i+1]) {
			if i++; args[i] == "" {
				return usageError("a value of '%s' is empty; is it a variable that is not set?", w)
			}
			s.flags = append(s.flags, flagWord(name, args[i], true))
		}
	}
	return nil
}

// takesImage tells whether a word after -i is one more image. The reference
// takes every following word, the prompt too; here a word is an image only when
// a prompt was given already or such a file exists.
func (s *scan) takesImage(w string) bool {
	if strings.HasPrefix(w, "-") {
		return false
	}
	return len(s.positional) > 0 || isFile(w)
}

func isFile(name string) bool {
	fi, err := os.Stat(name)
	return err == nil && fi.Mode().IsRegular()
}

func (s *scan) flag(name, value string, shape flagShape) error {
	if _, twice := s.seen[name]; twice && !shape.repeat {
		return usageError("the argument '%s' cannot be used multiple times", name)
	}
	s.seen[name] = value
	s.flags = append(s.flags, flagWord(name, value, shape.value))
	return nil
}

// word takes a positional: the first one after exec may be a subcommand.
func (s *scan) word(w string) {
	if s.command == "exec" && !s.sub && len(s.positional) == 0 {
		switch w {
		case "resume", "fork", "review":
			s.command, s.sub = w, true
			return
		case "help":
			s.flags, s.sub = append(s.flags, "--help"), true
			return
		}
	}
	s.positional = append(s.positional, w)
}

// withFront puts the options from before the command first; a single option
// given again after the command wins.
func (s *scan) withFront(front []string) []string {
	var out []string
	for _, f := range front {
		name, _, _ := strings.Cut(f, "=")
		if name == "--ask-for-approval" {
			continue // accepted there by the reference, changes nothing: nobody is asked
		}
		if _, again := s.seen[name]; again && !execShapes[name].repeat {
			continue
		}
		out = append(out, f)
	}
	return append(out, s.flags...)
}
