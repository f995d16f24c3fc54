package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

const (
	// maxModelText is the text of one answer that the model sees where nothing
	// else is configured, and of every message of a failed call.
	maxModelText = 48_000
	// maxImages bounds the encoded images of one answer.
	maxImages = 8 << 20
	// maxEventBytes bounds an answer in the log.
	maxEventBytes = 1 << 20
	noAudio       = "<audio content omitted because you do not support audio input>"
)

// answer is what a server replied to tools/call.
type answer struct {
	content    []block
	structured json.RawMessage // nil if there is none
	isError    bool
}

// block is one content block, as it came and as far as it is understood.
type block struct {
	raw  json.RawMessage
	Type string `json:"type"`
	Text string `json:"text"`
	Data string `json:"data"`
	MIME string `json:"mimeType"`
}

func parseAnswer(raw json.RawMessage) (answer, error) {
	var wire struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return answer{}, errors.New("the server's answer is not of the form that the protocol asks for")
	}
	a := answer{isError: wire.IsError}
	if s := compact(wire.Structured); len(s) > 0 && string(s) != "null" {
		a.structured = s
	}
	for _, one := range wire.Content {
		b := block{raw: compact(one)}
		if json.Unmarshal(one, &b) != nil || b.Type == "" {
			return answer{}, errors.New("the server's answer holds an entry that is not a content block")
		}
		if b.Type == "audio" {
			b = textBlock(noAudio)
		}
		a.content = append(a.content, b)
	}
	return a, nil
}

func textBlock(text string) block {
	raw, err := event.Marshal(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", text})
	if err != nil {
		raw = json.RawMessage(`{"type":"text","text":""}`)
	}
	return block{raw: raw, Type: "text", Text: text}
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return nil
	}
	return b.Bytes()
}

// forEvent is the answer as the log holds it: as it came, or shortened when it
// is too large.
func (a answer) forEvent() *event.MCPResult {
	r := &event.MCPResult{Content: []json.RawMessage{}, StructuredContent: json.RawMessage("null")}
	left := maxEventBytes
	if a.structured != nil {
		if len(a.structured) <= left {
			r.StructuredContent = a.structured
			left -= len(a.structured)
		} else {
			r.Content = append(r.Content, textBlock(fmt.Sprintf("<structured content of %d bytes omitted>", len(a.structured))).raw)
		}
	}
	for _, b := range a.content {
		if len(b.raw) > left {
			if b.Type == "text" {
				b = textBlock(shorten(b.Text, max(left/2, 0)))
			} else {
				b = textBlock(fmt.Sprintf("<%s content of %d bytes omitted>", clip(b.Type, maxName), len(b.raw)))
			}
		}
		r.Content = append(r.Content, b.raw)
		if left -= len(b.raw); left <= 0 && len(r.Content) < len(a.content) {
			r.Content = append(r.Content, textBlock(fmt.Sprintf("<%d more content blocks omitted>", len(a.content)-len(r.Content))).raw)
			break
		}
	}
	return r
}

// header is the first line of what the model sees.
func header(took time.Duration) string {
	return fmt.Sprintf("Wall time: %.4f seconds\nOutput:", took.Seconds())
}

// part is one part of a tool's output.
type part struct {
	Type   string `json:"type"`
	Text   string `json:"text,omitempty"`
	Image  string `json:"image_url,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// forModel is the answer in the reference's layout: structured content as one
// string, else a list of parts. Its text has at most most bytes.
func (a answer) forModel(took time.Duration, most int) json.RawMessage {
	if a.structured != nil {
		return output(header(took) + "\n" + shorten(string(a.structured), most))
	}
	parts := []part{{Type: "input_text", Text: header(took)}}
	text, images, omitted := most, maxImages, 0
	for _, b := range a.content {
		var bad error
		if b.Type == "image" && len(b.Data) <= images && seen(b.MIME) {
			var kind string
			if kind, bad = picture(b.Data); bad == nil {
				images -= len(b.Data)
				parts = append(parts, part{Type: "input_image", Image: "data:" + kind + ";base64," + b.Data, Detail: "high"})
				continue
			}
		}
		shown := b.Text
		switch {
		case bad != nil:
			shown = fmt.Sprintf("<image content of %d bytes omitted: it %s>", len(b.Data), bad)
		case b.Type == "image":
			shown = fmt.Sprintf("<image content of %d bytes omitted>", len(b.Data))
		case b.Type != "text":
			shown = string(b.raw)
		}
		if text <= 0 {
			omitted++
			continue
		}
		shown = shorten(shown, text)
		text -= len(shown)
		parts = append(parts, part{Type: "input_text", Text: shown})
	}
	if omitted > 0 {
		parts = append(parts, part{Type: "input_text", Text: fmt.Sprintf("[omitted %d text items ...]", omitted)})
	}
	return output(parts)
}

// seen tells whether the model takes images of that kind.
func seen(mime string) bool {
	switch strings.ToLower(mime) {
	case "image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp":
		return true
	}
	return false
}

// picture is the MIME type of an image in base64. The error, the end of a
// sentence about the image, says why the service would refuse it, and with it the
// whole request.
func picture(encoded string) (string, error) {
	data, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return "", errors.New("is not encoded in base64")
	}
	return tool.ImageType(data)
}

func errorOutput(took time.Duration, message string) json.RawMessage {
	return output([]part{{Type: "input_text", Text: header(took)}, {Type: "input_text", Text: shorten(message, maxModelText)}})
}

func output(v any) json.RawMessage {
	raw, err := event.Marshal(v)
	if err != nil {
		return json.RawMessage(`""`) // strings and parts always encode
	}
	return raw
}

// shorten keeps the two ends of a text that is longer than max bytes.
func shorten(s string, max int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= max {
		return s
	}
	const longest = len("…18446744073709551615 tokens truncated…")
	half := 0
	if max > longest {
		half = (max - longest) / 2
	}
	head := strings.ToValidUTF8(s[:half], "")
	end := strings.ToValidUTF8(s[len(s)-half:], "")
	lost := len(s) - len(head) - len(end)
	return fmt.Sprintf("%s…%d tokens truncated…%s", head, (lost+3)/4, end)
}
