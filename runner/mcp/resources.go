package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// maxResources bounds the list of one server.
const maxResources = 2_000

// ownServer is the server that items of lists over all servers name, as in the
// reference.
const ownServer = "codex"

// resourceTool reads what servers offer besides tools. Reading changes nothing
// and is not asked about.
type resourceTool struct {
	set         *Set
	name        string
	description string
	schema      string
	run         func(context.Context, resourceArguments) (json.RawMessage, error)
}

type resourceArguments struct {
	Server string `json:"server"`
	Cursor string `json:"cursor"`
	URI    string `json:"uri"`
}

const listSchema = `{"type":"object","properties":{` +
	`"server":{"type":"string","description":"Name of one server. Without it all servers are asked."},` +
	`"cursor":{"type":"string","description":"The nextCursor of an earlier answer of the same server. Without it the list begins at its start."}},` +
	`"additionalProperties":false}`

const readSchema = `{"type":"object","properties":{` +
	`"server":{"type":"string","description":"Name of the server, as in the list of resources."},` +
	`"uri":{"type":"string","description":"URI of the resource, as in the list of resources."}},` +
	`"required":["server","uri"],"additionalProperties":false}`

func resourceTools(s *Set) []tool.Tool {
	return []tool.Tool{
		&resourceTool{
			set: s, name: "list_mcp_resources", schema: listSchema,
			description: "Lists the resources that MCP servers hold ready to be read, such as files, database schemas or other facts about the task.",
			run:         s.list("resources/list", "resources"),
		},
		&resourceTool{
			set: s, name: "list_mcp_resource_templates", schema: listSchema,
			description: "Lists the templates of resources whose URI takes parameters, of MCP servers.",
			run:         s.list("resources/templates/list", "resourceTemplates"),
		},
		&resourceTool{
			set: s, name: "read_mcp_resource", schema: readSchema,
			description: "Reads one resource of an MCP server.",
			run:         s.readResource,
		},
	}
}

// Name is the tool's name in calls.
func (t *resourceTool) Name() string { return t.name }

// Parallel is true: nothing is changed.
func (t *resourceTool) Parallel() bool { return true }

// Spec is the function's part of the request.
func (t *resourceTool) Spec() json.RawMessage {
	return functionSpec(t.name, t.description, json.RawMessage(t.schema))
}

// Call asks the servers. It never returns an error.
func (t *resourceTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args resourceArguments
	raw, err := objectArguments(c.Arguments)
	if err == nil {
		err = json.Unmarshal(raw, &args)
	}
	server := args.Server
	if server == "" {
		server = ownServer
	}
	a := open(t.set.o.Log, server, t.name, c)
	if err != nil {
		return a.text("failed to parse function arguments: " + err.Error()), nil
	}
	out, err := t.run(ctx, args)
	if err != nil {
		return a.text(err.Error()), nil
	}
	out = t.set.o.Mask.MaskJSON(out)
	shown := shorten(string(out), t.set.o.MaxText)
	a.item.Status = event.Completed
	a.item.Result = answer{content: []block{textBlock(string(out))}}.forEvent()
	return a.close(tool.Result{Status: event.Completed, Output: output(shown)}, int64(len(out))), nil
}

// text fails a call with a plain string as its output.
func (a *account) text(message string) tool.Result {
	a.item.Status, a.item.Error = event.Failed, &event.MCPError{Message: message}
	return a.close(tool.Result{Status: event.Failed, Message: message, Output: output(shorten(message, maxModelText))}, int64(len(message)))
}

// list returns a function that lists the resources of one server, one page at
// a time, or of all.
func (s *Set) list(method, field string) func(context.Context, resourceArguments) (json.RawMessage, error) {
	return func(ctx context.Context, args resourceArguments) (json.RawMessage, error) {
		if args.Server == "" {
			if args.Cursor != "" {
				return nil, errors.New("a cursor belongs to one server: name it")
			}
			return s.listAll(ctx, method, field)
		}
		one, err := s.find(args.Server)
		if err != nil {
			return nil, err
		}
		ctx, cancel := one.bounded(ctx, method)
		defer cancel()
		items, next, err := one.page(ctx, method, field, &rawParams{Cursor: args.Cursor})
		if err != nil {
			return nil, one.failed(ctx, method, err)
		}
		answer := map[string]any{"server": args.Server, field: withServer(items, args.Server)}
		if next != "" {
			answer["nextCursor"] = next
		}
		return event.Marshal(answer)
	}
}

// listAll asks every server that has resources. One that fails is left out, with a
// notice; one that does not know the question has no such list.
func (s *Set) listAll(ctx context.Context, method, field string) (json.RawMessage, error) {
	all := []json.RawMessage{}
	for _, one := range s.servers {
		if !one.isReady() || one.died() != nil || !one.hasResources() {
			continue
		}
		bounded, cancel := one.bounded(ctx, method)
		items, err := one.pages(bounded, method, field, maxResources)
		if code, _, refused := protocolError(err); err != nil && !(refused && code == jsonrpc.CodeMethodNotFound) {
			one.notice("mcp_resources_failed", fmt.Sprintf("MCP server %s was left out of a list of all servers: %v", one.cfg.Name, one.failed(bounded, method, err)))
		}
		cancel()
		all = append(all, withServer(items, one.cfg.Name)...)
	}
	return event.Marshal(map[string]any{field: all})
}

func (s *server) hasResources() bool {
	r := s.session.InitializeResult()
	return r != nil && r.Capabilities != nil && r.Capabilities.Resources != nil
}

// withServer adds the server's name to each entry.
func withServer(items []json.RawMessage, server string) []json.RawMessage {
	named := []json.RawMessage{}
	for _, raw := range items {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil || fields == nil {
			continue
		}
		fields["server"] = output(server)
		named = append(named, output(fields))
	}
	return named
}

func (s *Set) readResource(ctx context.Context, args resourceArguments) (json.RawMessage, error) {
	if args.Server == "" || args.URI == "" {
		return nil, errors.New("failed to parse function arguments: `server` and `uri` must not be empty")
	}
	one, err := s.find(args.Server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := one.bounded(ctx, "resources/read")
	defer cancel()
	raw, err := one.request(ctx, "resources/read", &rawParams{URI: args.URI})
	if err != nil {
		return nil, one.failed(ctx, "resources/read", fmt.Errorf("resources/read failed for `%s` (%s): %w", args.Server, args.URI, readable(err)))
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return nil, errors.New("resources/read failed: the server's answer is not an object")
	}
	return event.Marshal(map[string]any{"server": args.Server, "uri": args.URI, "contents": fields["contents"]})
}

// bounded applies the server's bound of calls.
func (s *server) bounded(ctx context.Context, method string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.cfg.ToolTimeout, fmt.Errorf("timed out awaiting %s after %dms", method, s.cfg.ToolTimeout/time.Millisecond))
}

func (s *server) failed(ctx context.Context, method string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s failed: %w", method, readable(err))
}

// refusal is a server's own refusal in the reference's words.
type refusal struct {
	code    int64
	message string
}

// Error is the reference's text.
func (r refusal) Error() string { return fmt.Sprintf("Mcp error: %d: %s", r.code, r.message) }

// readable words a refusal of the protocol as the reference does.
func readable(err error) error {
	if code, message, ok := protocolError(err); ok {
		return refusal{code, message}
	}
	return err
}
