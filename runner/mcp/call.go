package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// remote is one tool of one server.
type remote struct {
	server      *server
	name        string // to the model
	remoteName  string // to the server
	description string
	schema      json.RawMessage
	readOnly    bool
	destructive bool
}

// Name is the tool's name in calls, within its namespace.
func (t *remote) Name() string { return t.name }

// Namespace is the server's namespace in calls.
func (t *remote) Namespace() string { return t.server.namespace }

// NamespaceDescription is what the server says of itself.
func (t *remote) NamespaceDescription() string {
	return clip(t.server.instructions, maxDescription)
}

// Parallel is false: whether calls may overlap only the server could know.
func (t *remote) Parallel() bool { return false }

// Spec is the function's part of the request.
func (t *remote) Spec() json.RawMessage { return functionSpec(t.name, t.description, t.schema) }

func functionSpec(name, description string, schema json.RawMessage) json.RawMessage {
	spec, err := event.Marshal(struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Strict      bool            `json:"strict"`
		Parameters  json.RawMessage `json:"parameters"`
	}{"function", name, description, false, schema})
	if err != nil {
		return nil // only a schema that is not JSON fails, and it was read as JSON
	}
	return spec
}

// mode is the configured approval mode.
func (t *remote) mode() string {
	if m := t.server.cfg.ToolApproval[t.remoteName]; m != "" {
		return m
	}
	if m := t.server.cfg.DefaultApproval; m != "" {
		return m
	}
	return "auto"
}

// account is one call on its way into the log.
type account struct {
	log   *event.Log
	call  tool.Call
	item  event.MCPToolCall
	id    string
	began time.Time
}

func open(log *event.Log, server, name string, c tool.Call) *account {
	a := &account{log: log, call: c, began: time.Now()}
	a.item = event.MCPToolCall{Server: server, Tool: name, Arguments: arguments(c.Arguments), Status: event.InProgress}
	if log != nil {
		a.id = log.Start(a.item)
	}
	return a
}

// arguments are the call's arguments as an item shows them.
func arguments(raw json.RawMessage) json.RawMessage {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) == nil && compact.Len() > 0 {
		return compact.Bytes()
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return json.RawMessage(`{}`)
	}
	text, err := event.Marshal(string(raw))
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return text
}

// close completes the item and tells the measures.
func (a *account) close(r tool.Result, size int64) tool.Result {
	r.ItemID, r.OutBytes = a.id, size
	if a.log == nil {
		return r
	}
	a.log.Complete(a.id, a.item)
	name := a.call.Name
	if a.call.Namespace != "" {
		name = a.call.Namespace + "." + name
	}
	a.log.Emit(event.ToolCompleted{
		Tool: name, CallID: a.call.ID, ItemID: a.id, Status: r.Status, DurationMS: time.Since(a.began).Milliseconds(),
		OutBytes: size, SeenBytes: int64(len(r.Output)), Message: r.Message,
	})
	return r
}

// fail completes a call that gave no result.
func (a *account) fail(message string, denial *event.Denial) tool.Result {
	a.item.Status, a.item.Error, a.item.Denial = event.Failed, &event.MCPError{Message: message}, denial
	r := tool.Result{Status: event.Failed, Message: message, Denied: denial}
	if denial != nil {
		r.Status = event.Declined
	}
	r.Output = errorOutput(time.Since(a.began), message)
	return a.close(r, int64(len(message)))
}

// Announces says that a call tells when its item stands.
func (t *remote) Announces() {}

// Call calls the tool once. It never returns an error: what goes wrong is for
// the model to see.
func (t *remote) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	s := t.server
	a := open(s.set.o.Log, s.cfg.Name, t.remoteName, c)
	tool.Begun(ctx)
	args, err := objectArguments(c.Arguments)
	if err != nil {
		return a.fail("failed to parse function arguments: "+err.Error(), nil), nil
	}
	if denial, text := t.decide(a, args); denial != nil {
		return a.fail(text, denial), nil
	}
	bound := fmt.Errorf("timed out awaiting tools/call after %dms", s.cfg.ToolTimeout.Milliseconds())
	callCtx, cancel := context.WithTimeoutCause(ctx, s.cfg.ToolTimeout, bound)
	defer cancel()
	began := time.Now()
	raw, err := s.request(callCtx, "tools/call", &rawParams{Name: t.remoteName, Arguments: args})
	if err != nil {
		if callCtx.Err() != nil {
			err = context.Cause(callCtx)
		} else if _, _, ok := protocolError(err); !ok {
			err = s.explain(err)
		}
		return a.fail(errText(s.cfg.Name, t.remoteName, err, bound), nil), nil
	}
	answer, err := parseAnswer(s.set.o.Mask.MaskJSON(raw))
	if err != nil {
		return a.fail(errText(s.cfg.Name, t.remoteName, err, nil), nil), nil
	}
	a.item.Result = answer.forEvent()
	r := tool.Result{Status: event.Completed, Output: answer.forModel(time.Since(began), t.server.set.o.MaxText)}
	if answer.isError {
		r.Status = event.Failed
	}
	a.item.Status = r.Status
	return a.close(r, int64(len(raw))), nil
}

// decide asks for the decision and records it.
func (t *remote) decide(a *account, args json.RawMessage) (*event.Denial, string) {
	s := t.server
	d := s.set.o.Decide(Request{
		Server: s.cfg.Name, Tool: t.remoteName, Mode: t.mode(), ReadOnly: t.readOnly, Destructive: t.destructive, Arguments: args,
	})
	record := event.PolicyDecision{
		Action: "mcp", Subject: s.cfg.Name + "/" + t.remoteName, Decision: "allow", Outcome: "allowed",
		Reason: d.Reason, Source: d.Source, Rule: d.Rule, Origin: d.Origin, ItemID: a.id, CallID: a.call.ID,
	}
	if !d.Allowed {
		record.Decision, record.Outcome = "forbidden", "denied"
	}
	if s.set.o.Log != nil {
		s.set.o.Log.Emit(record)
	}
	if d.Allowed {
		return nil, ""
	}
	denial := &event.Denial{Reason: d.Reason, Source: d.Source, Rule: d.Rule, Origin: d.Origin}
	if denial.Source == "" {
		denial.Source = "approval"
	}
	if denial.Reason == "" {
		denial.Reason = needsApproval
	}
	if denial.Source == "approval" {
		return denial, needsApproval
	}
	return denial, denial.Reason
}

// Decline shows a call that was refused before it came here, by a hook or a
// limit.
func (t *remote) Decline(_ context.Context, c tool.Call, d event.Denial, text string) tool.Result {
	a := open(t.server.set.o.Log, t.server.cfg.Name, t.remoteName, c)
	if a.log != nil {
		a.log.Emit(event.PolicyDecision{
			Action: "mcp", Subject: t.server.cfg.Name + "/" + t.remoteName, Decision: "forbidden", Outcome: "denied",
			Reason: d.Reason, Source: d.Source, Rule: d.Rule, Origin: d.Origin, ItemID: a.id, CallID: c.ID,
		})
	}
	return a.fail(text, &d)
}

// objectArguments checks that the arguments are an object; none are an empty
// one.
func objectArguments(raw json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return json.RawMessage(`{}`), nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("the arguments are not an object")
	}
	return raw, nil
}

// notSent is the SDK's own code of a request that the transport did not bring to
// the server, or that something before the server answered, as a proxy does: the
// rest of the error tells what happened.
const notSent = -32005

// protocolError reads the server's own refusal of a request. Its data often says
// what the message does not, as which argument is wrong.
func protocolError(err error) (code int64, message string, ok bool) {
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code == notSent {
		return 0, "", false
	}
	message = e.Message
	if len(e.Data) > 0 && string(e.Data) != "null" {
		message += "(" + string(e.Data) + ")"
	}
	return e.Code, clip(message, maxModelText), true
}
