package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nightshift-ci/nightshift/runner/event"
)

const (
	// maxMessage is the largest message taken from a server.
	maxMessage = 32 << 20
	// maxUnasked is how many notifications a server may send between two
	// answers; a request of its own counts as requestCost of them.
	maxUnasked  = 100_000
	requestCost = 100
	// maxJunk is how many lines of standard output may be no messages.
	maxJunk = 10_000
	// serverFault stands for the code that a server does not give.
	serverFault = -32000
	// maxStderr is what is kept of a server's standard error.
	maxStderr = 4 << 10
)

// rawPrefix marks methods whose answers are wanted as they came. The SDK
// decodes answers of standard methods into its own types, which changes large
// numbers and the order of keys and fails on content of unknown kinds; so
// requests are made under another name, and the name is put right on the wire.
const rawPrefix = "raw:"

// rawMethods are the standard methods that are called that way.
var rawMethods = []string{"tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read"}

// rawParams are the parameters of such a request.
type rawParams struct {
	sdk.ParamsBase
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	URI       string          `json:"uri,omitempty"`
	Cursor    string          `json:"cursor,omitempty"`
}

// rawResult is the answer to such a request.
type rawResult struct {
	sdk.ResultBase
	raw json.RawMessage
}

// UnmarshalJSON keeps the bytes.
func (r *rawResult) UnmarshalJSON(b []byte) error {
	r.raw = bytes.Clone(b)
	return nil
}

// MarshalJSON gives the bytes back.
func (r *rawResult) MarshalJSON() ([]byte, error) { return r.raw, nil }

// rightMethod puts the standard name into an encoded request.
func rightMethod(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"method":"`+rawPrefix)) {
		return message
	}
	var m struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params,omitempty"`
	}
	if json.Unmarshal(message, &m) != nil || !strings.HasPrefix(m.Method, rawPrefix) {
		return message // those words stand in the parameters of something else
	}
	m.Method = strings.TrimPrefix(m.Method, rawPrefix)
	out, err := event.Marshal(m)
	if err != nil {
		return message
	}
	if bytes.HasSuffix(message, []byte("\n")) {
		out = append(out, '\n')
	}
	return out
}

// Errors of a stream that cannot be read on.
var (
	errLongMessage = fmt.Errorf("it sent a message of more than %d bytes", maxMessage)
	errFlood       = fmt.Errorf("it sent more than %d messages that nobody asked for", maxUnasked)
	errJunk        = fmt.Errorf("it wrote more than %d lines that are not messages to its standard output", maxJunk)
)

// frames hands on the lines of a server's standard output that are answers or
// requests. Servers print banners and logs there too, which the SDK would take
// for the end of the connection; their notifications interest nobody here and
// would cost the SDK a goroutine each.
type frames struct {
	br      *bufio.Reader
	rest    []byte
	unasked int
	junk    int
	failed  func(error)
}

// Read returns part of one message at a time.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		line, err := f.line()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				f.failed(err)
			}
			return 0, err
		}
		f.rest = line
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// line returns the next message with its newline, or nothing for a line that
// is none.
func (f *frames) line() ([]byte, error) {
	var line []byte
	for {
		part, err := f.br.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxMessage {
			return nil, errLongMessage
		}
		if err == nil || err == io.EOF && len(bytes.TrimSpace(line)) > 0 {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil, nil
	}
	return f.judge(line)
}

// judge returns what of a line is to be handed on, each message with its
// newline. A list stands for the messages in it.
func (f *frames) judge(line []byte) ([]byte, error) {
	if line[0] == '[' {
		var batch []json.RawMessage
		if json.Unmarshal(line, &batch) == nil && len(batch) > 0 {
			var kept []byte
			for _, one := range batch {
				part, err := f.message(one)
				if err != nil {
					return nil, err
				}
				kept = append(kept, part...)
			}
			return kept, nil
		}
	}
	return f.message(line)
}

// message returns a text that the SDK can take for a message and that is wanted,
// or nothing. One that it cannot take would end the connection.
func (f *frames) message(line []byte) ([]byte, error) {
	var m struct {
		Version string          `json:"jsonrpc"`
		Method  *string         `json:"method"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
	}
	known := json.Unmarshal(line, &m) == nil && m.Version == "2.0"
	named := len(m.ID) > 0 && (m.ID[0] == '"' || m.ID[0] == '-' || m.ID[0] >= '0' && m.ID[0] <= '9')
	answer := m.Method == nil && named && (m.Result != nil || m.Error != nil)
	if !known || m.Method == nil && !answer || m.Method != nil && !named && m.ID != nil {
		if f.junk++; f.junk > maxJunk {
			return nil, errJunk
		}
		return nil, nil
	}
	switch {
	case answer:
		f.unasked = 0
	case named:
		f.unasked += requestCost
	default:
		f.unasked++
	}
	if f.unasked > maxUnasked {
		return nil, errFlood
	}
	if !answer && !named {
		return nil, nil // a notification
	}
	if answer && m.Error != nil {
		line = rightError(line, m.ID, m.Error)
	}
	return append(bytes.Clone(line), '\n'), nil
}

// rightError gives an answer whose error is no error object, as a bare text,
// the shape of one.
func rightError(line []byte, id, fault json.RawMessage) []byte {
	var e *struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(fault, &e) == nil {
		return line
	}
	var said string
	if json.Unmarshal(fault, &said) != nil {
		said = string(fault)
	}
	out, err := event.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": serverFault, "message": said}})
	if err != nil {
		return line
	}
	return out
}

// Close leaves the pipe to the process's end.
func (f *frames) Close() error { return nil }

// tail keeps the end of what was written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if len(t.kept) > maxStderr {
		t.kept = bytes.Clone(t.kept[len(t.kept)-maxStderr:])
	}
	return len(p), nil
}

// String is the kept text on one line, without control characters.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(t.kept), "\uFFFD"))
	return strings.Join(strings.Fields(clean), " ")
}
