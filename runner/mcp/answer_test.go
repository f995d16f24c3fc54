package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
)

func TestAnswers(t *testing.T) {
	s, rec := one(t, "odd")
	const failed = `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"tool call error: tool call failed for ` + "`s/answer`" + `\n\nCaused by:\n    `
	for x, want := range map[string]string{
		"mixed": `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"t1"},{"type":"input_image","image_url":"data:image/png;base64,` + onePixel + `","detail":"high"},` +
			`{"type":"input_text","text":"<audio content omitted because you do not support audio input>"},` +
			`{"type":"input_text","text":"{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///x\",\"text\":\"r\"}}"},` +
			`{"type":"input_text","text":"{\"type\":\"hologram\",\"shape\":[1,2]}"},{"type":"input_text","text":"<image content of 4 bytes omitted>"},` +
			`{"type":"input_text","text":"<image content of 4 bytes omitted: it is not a PNG, JPEG, GIF or WebP image>"},` +
			`{"type":"input_text","text":"<image content of 1 bytes omitted: it is not encoded in base64>"}]`,
		"structured": `"WALL\n{\"b\":12345678901234567890,\"a\":{\"y\":[1,2]}}"`,
		"null":       `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"t"}]`,
		"empty":      `[{"type":"input_text","text":"WALL"}]`,
		"nothing":    `[{"type":"input_text","text":"WALL"}]`,
		"badcontent": failed + `the server's answer is not of the form that the protocol asks for"}]`,
		"nullblock":  failed + `the server's answer holds an entry that is not a content block"}]`,
		"number":     failed + `the server's answer is not of the form that the protocol asks for"}]`,
		"refused":    failed + `Mcp error: -32000: text({\"x\":1})"}]`,
	} {
		if got := shown(call(t, s, "answer", `{"x":"`+x+`"}`)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", x, got, want)
		}
	}
	for _, args := range []string{`[1]`, `"x"`, `null`, `{`} {
		if r := call(t, s, "answer", args); r.Status != event.Failed || !strings.Contains(string(r.Output), "failed to parse function arguments") {
			t.Errorf("arguments %s: %s", args, r.Output)
		}
	}
	if items := rec.items(t); !strings.Contains(items, `"structured_content":{"b":12345678901234567890,"a":{"y":[1,2]}}`) || !strings.Contains(items, `{"type":"hologram","shape":[1,2]}`) {
		t.Errorf("content is not kept as it came:\n%s", items)
	}
}

func TestBigAnswers(t *testing.T) {
	s, rec := one(t, "big")
	for _, n := range []int{1000, 100_000, 5_000_000} { // the last one is 10 MB
		r := call(t, s, "fill", fmt.Sprintf(`{"n":%d}`, n))
		var parts []part
		check(t, json.Unmarshal(r.Output, &parts))
		if r.Status != event.Completed || len(parts) != 2 {
			t.Fatalf("%d: %s, %d parts", n, r.Status, len(parts))
		}
		got := parts[1].Text
		if n == 1000 {
			if len(got) != 2000 {
				t.Errorf("a short text was cut to %d bytes", len(got))
			}
			continue
		}
		lost := 2*n - strings.Count(got, "é")*2
		if len(got) > maxModelText || !strings.Contains(got, fmt.Sprintf("é…%d tokens truncated…é", (lost+3)/4)) {
			t.Errorf("%d: the model sees %d bytes, %.60q", n, len(got), got[len(got)/2-30:])
		}
	}
	if n := len(rec.items(t)); n > 3*maxEventBytes {
		t.Errorf("the log holds %d bytes", n)
	}
	r := call(t, s, "fill", fmt.Sprintf(`{"n":%d}`, maxMessage))
	if r.Status != event.Failed || !strings.Contains(string(r.Output), "a message of more than") {
		t.Errorf("an endless message: %s", r.Output)
	}
	waitFor(t, rec, "s died, s ready")
}

func TestResources(t *testing.T) {
	s, rec := fixture(t, map[string]policy.MCPServer{"lib": fakeServer("library"), "bare": fakeServer("scales"), "dead": fakeServer("diesearly"), "odd": fakeServer("oddlibrary")}, nil)
	check(t, s.Ready(t.Context()))
	for _, c := range []struct{ name, args, want string }{
		{"list_mcp_resources", ``, `"{\"resources\":[{\"name\":\"pear\",\"server\":\"lib\",\"size\":12345678901234567890,\"uri\":\"pear://1\"}]}"`},
		{"list_mcp_resources", `{"server":"lib"}`, `"{\"resources\":[{\"name\":\"pear\",\"server\":\"lib\",\"size\":12345678901234567890,\"uri\":\"pear://1\"}],\"server\":\"lib\"}"`},
		{"list_mcp_resource_templates", `{"server":"lib"}`, `"{\"nextCursor\":\"more\",\"resourceTemplates\":[{\"name\":\"pears\",\"server\":\"lib\",\"uriTemplate\":\"pear://{n}\"}],\"server\":\"lib\"}"`},
		{"read_mcp_resource", `{"server":"lib","uri":"pear://1"}`, `"{\"contents\":[{\"uri\":\"pear://1\",\"text\":\"a pear\"}],\"server\":\"lib\",\"uri\":\"pear://1\"}"`},
		{"read_mcp_resource", `{"server":"lib","uri":"x"}`, "\"resources/read failed: resources/read failed for `lib` (x): Mcp error: -32601: no such method\""},
		{"read_mcp_resource", `{"server":"lib"}`, "\"failed to parse function arguments: `server` and `uri` must not be empty\""},
		{"list_mcp_resources", `{"server":"nobody"}`, `"unknown MCP server \"nobody\""`},
		{"list_mcp_resources", `{"server":"dead"}`, `"MCP server \"dead\" is not running"`},
		{"list_mcp_resources", `{"server":"bare"}`, `"resources/list failed: Mcp error: -32601: no such method"`},
		{"list_mcp_resources", `{"cursor":"x"}`, `"a cursor belongs to one server: name it"`},
		{"list_mcp_resources", `{"server":7}`, ``},
	} {
		r := call(t, s, c.name, c.args)
		if got := string(r.Output); c.want != "" && got != c.want || c.want == "" && r.Status != event.Failed {
			t.Errorf("%s %s:\n got %s\nwant %s", c.name, c.args, got, c.want)
		}
	}
	if said := rec.notices(); strings.Count(said, "\n") > 0 || !strings.Contains(said, "MCP server odd was left out of a list of all servers: resources/list failed: its answer to resources/list is not a list") {
		t.Errorf("notices: %s", said)
	}
	if items := rec.items(t); !strings.Contains(items, `"server":"codex","tool":"list_mcp_resources","arguments":{}`) {
		t.Errorf("items: %s", items)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"x"},{"type":"image","data":"x","mimeType":"image/png"}],"structuredContent":{},"isError":true}`))
	f.Add([]byte(`{"content":[{"type":"audio"}],"structuredContent":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseAnswer(raw)
		if err != nil {
			return
		}
		if out := a.forModel(time.Second, maxModelText); !json.Valid(out) {
			t.Errorf("output %s", out)
		}
		if _, err := json.Marshal(a.forEvent()); err != nil {
			t.Errorf("event: %v", err)
		}
	})
}
