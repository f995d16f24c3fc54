package tool

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// userInputTool answers request_user_input. It is not offered: nobody is there
// to be asked.
type userInputTool struct{ set *Set }

func (t *userInputTool) Name() string          { return "request_user_input" }
func (t *userInputTool) Parallel() bool        { return true }
func (t *userInputTool) Spec() json.RawMessage { return nil }

// Call refuses.
func (t *userInputTool) Call(_ context.Context, c Call) (Result, error) {
	d := event.Denial{Source: "approval", Reason: "the run is unattended: there is nobody to answer questions"}
	return t.set.refused(c, t.set.deps.Now(), d, "request_user_input is unavailable in Default mode"), nil
}

// permissionsTool answers request_permissions from policy: what the run has is
// granted, everything else is refused at once. It is not offered, since asking
// changes nothing.
type permissionsTool struct{ set *Set }

func (t *permissionsTool) Name() string          { return "request_permissions" }
func (t *permissionsTool) Parallel() bool        { return true }
func (t *permissionsTool) Spec() json.RawMessage { return nil }

// permissions is a set of rights, asked for or granted.
type permissions struct {
	Network *struct {
		Enabled bool `json:"enabled"`
	} `json:"network,omitempty"`
	Files *filePermissions `json:"file_system,omitempty"`
}

type filePermissions struct {
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
}

func permissionsShape() shape {
	paths := shape{kind: list, elem: &shape{kind: text}}
	files := shape{kind: object, fields: []field{{"read", paths, false}, {"write", paths, false}}}
	network := shape{kind: object, fields: []field{{"enabled", shape{kind: boolean}, false}}}
	asked := shape{kind: object, fields: []field{{"network", network, false}, {"file_system", files, false}}}
	return shape{kind: object, fields: []field{{"permissions", asked, true}, {"reason", shape{kind: text}, false}}}
}

// Call grants what holds already and refuses the rest.
func (t *permissionsTool) Call(ctx context.Context, c Call) (Result, error) {
	s, began := t.set, t.set.deps.Now()
	var a struct {
		Permissions permissions `json:"permissions"`
	}
	if err := decodeArgs(c.Arguments, permissionsShape(), &a); err != nil {
		return s.failed(c, began, err.Error()), nil
	}
	box, err := s.deps.Box(ctx)
	if err != nil {
		return Result{}, err
	}
	granted, refused := s.grant(a.Permissions, box.Report())
	answer := string(encode(map[string]any{"permissions": granted, "scope": "turn"}))
	if len(refused) == 0 {
		return s.finish(c, began, Result{Output: quoted(answer), Status: event.Completed}), nil
	}
	d := event.Denial{Source: "approval", Reason: "nobody can be asked for more permissions, and the policy does not grant: " + strings.Join(refused, ", ")}
	return s.refused(c, began, d, answer), nil
}

// grant splits a request into what the run may do anyway and the rest.
func (s *Set) grant(asked permissions, now sandbox.Report) (granted permissions, refused []string) {
	full := now.Mode == sandbox.FullAccess
	if asked.Network != nil && asked.Network.Enabled {
		if full {
			granted.Network = asked.Network
		} else {
			refused = append(refused, "network")
		}
	}
	if asked.Files == nil {
		return granted, refused
	}
	files := &filePermissions{}
	for _, p := range asked.Files.Read {
		if full || !patch.Below(s.absolute(p), now.Denied) {
			files.Read = append(files.Read, p)
		} else {
			refused = append(refused, "reading "+p)
		}
	}
	for _, p := range asked.Files.Write {
		abs := s.absolute(p)
		if full || s.deps.Scope.Writable(abs) && !patch.Below(abs, now.Protected) && !patch.Below(abs, now.Denied) {
			files.Write = append(files.Write, p)
		} else {
			refused = append(refused, "writing "+p)
		}
	}
	if files.Read != nil || files.Write != nil {
		granted.Files = files
	}
	return granted, refused
}

// searchTool is the hosted web search: the service runs it, so a call never
// reaches this program.
type searchTool struct {
	set  *Set
	mode string
}

func (t *searchTool) Name() string   { return "web_search" }
func (t *searchTool) Parallel() bool { return true }

// Spec offers the search unless it is disabled; only the mode "live" may leave
// the service's index.
func (t *searchTool) Spec() json.RawMessage {
	switch t.mode {
	case "", "disabled":
		return nil
	}
	return encode(struct {
		Type     string   `json:"type"`
		External bool     `json:"external_web_access"`
		Content  []string `json:"search_content_types"`
	}{"web_search", t.mode == "live", []string{"text", "image"}})
}

// Call answers a model that calls the search as a function.
func (t *searchTool) Call(_ context.Context, c Call) (Result, error) {
	return t.set.failed(c, t.set.deps.Now(), "unsupported call: "+t.Name()), nil
}
