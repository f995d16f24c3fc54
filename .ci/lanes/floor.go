// Command floor is the least a runner can be: it sends one request, runs what the
// answer asks for in bubblewrap, sends the output back and ends with the message.
// It checks, limits, logs and protects nothing. bench.py compares with it.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

type item struct {
	Type      string `json:"type"`
	CallID    string `json:"call_id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Output    string `json:"output,omitempty"`
	Role      string `json:"role,omitempty"`
	Content   []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content,omitempty"`
}

func main() {
	history := []any{map[string]any{"type": "message", "role": "user", "content": []any{map[string]string{"type": "input_text", "text": "hi"}}}}
	for {
		done, err := ask(os.Args[1], &history)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if done {
			return
		}
	}
}

func ask(url string, history *[]any) (done bool, err error) {
	body, err := json.Marshal(map[string]any{"model": "gpt-5.5", "stream": true, "input": *history})
	if err != nil {
		return false, err
	}
	resp, err := http.Post(url+"/responses", "application/json", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<26)
	done = true
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type string `json:"type"`
			Item item   `json:"item"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return false, err
		}
		if e.Type != "response.output_item.done" {
			continue
		}
		*history = append(*history, e.Item)
		if e.Item.Type == "function_call" {
			done = false
			out := run(e.Item.Arguments)
			*history = append(*history, item{Type: "function_call_output", CallID: e.Item.CallID, Output: out})
		}
	}
	return done, lines.Err()
}

func run(arguments string) string {
	var a struct{ Cmd string }
	if err := json.Unmarshal([]byte(arguments), &a); err != nil {
		return err.Error()
	}
	out, err := exec.Command("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
		"bash", "-c", a.Cmd).CombinedOutput()
	if err != nil {
		out = append(out, err.Error()...)
	}
	if len(out) > 40_000 { // as runners do
		out = append(out[:20_000:20_000], out[len(out)-20_000:]...)
	}
	return string(out)
}
