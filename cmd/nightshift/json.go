package main

import (
	"encoding/json"
	"io"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Every command prints JSON through these functions, so that < and & stay
// readable everywhere.

// writeJSON prints v, indented.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeJSONLine prints v on one line.
func writeJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// jsonText is v on one line.
func jsonText(v any) (string, error) {
	text, err := event.Marshal(v)
	return string(text), err
}
