package runner

import (
	"encoding/json"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// webAction is what the service did on the web: the fields that events show.
type webAction struct {
	Type    string   `json:"type"`
	Query   *string  `json:"query,omitempty"`
	Queries []string `json:"queries,omitzero"`
	URL     *string  `json:"url,omitempty"`
	Pattern *string  `json:"pattern,omitempty"`
}

// webSearch shows a search that the service made by itself: first as it was
// announced, if it was, then as it ended.
func (r *run) webSearch(o outputItem, announced json.RawMessage) {
	first := o.Action
	if announced != nil {
		var early struct {
			Action json.RawMessage `json:"action"`
		}
		if json.Unmarshal(announced, &early) == nil {
			first = early.Action
		}
	}
	id := r.log.Start(webEvent(o.ID, first))
	r.log.Complete(id, webEvent(o.ID, o.Action))
}

func webEvent(id string, action json.RawMessage) event.WebSearch {
	var a webAction
	if json.Unmarshal(action, &a) != nil {
		a = webAction{}
	}
	var query string
	switch a.Type {
	case "search":
		a.URL, a.Pattern = nil, nil
		query = firstQuery(a)
	case "open_page":
		a.Query, a.Queries, a.Pattern = nil, nil, nil
		query = deref(a.URL)
	case "find_in_page":
		a.Query, a.Queries = nil, nil
		query = deref(a.URL)
		if a.Pattern != nil {
			query = "'" + *a.Pattern + "'"
			if a.URL != nil {
				query += " in " + *a.URL
			}
		}
	default:
		a = webAction{Type: "other"}
	}
	shown, err := json.Marshal(a)
	if err != nil { // texts can always be written
		shown = json.RawMessage(`{"type":"other"}`)
	}
	return event.WebSearch{CallID: id, Query: query, Action: shown}
}

// firstQuery stands for all queries of a search.
func firstQuery(a webAction) string {
	if q := deref(a.Query); q != "" {
		return q
	}
	switch {
	case len(a.Queries) == 0:
		return ""
	case len(a.Queries) > 1 && a.Queries[0] != "":
		return a.Queries[0] + " ..."
	}
	return a.Queries[0]
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
