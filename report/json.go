package report

import (
	_ "embed"
	"encoding/json"
	"io"
)

// Schema is the JSON Schema (draft 2020-12) of report.json.
//
//go:embed schema/report.schema.json
var Schema []byte

// renderJSON writes report.json: one run as its summary, several as a [Set].
func renderJSON(w io.Writer, runs []*Summary, _ *Options) error {
	if len(runs) == 1 {
		return indentJSON(w, runs[0])
	}
	return indentJSON(w, Set{SchemaVersion: SchemaVersion, Runs: list(runs)})
}

// indentJSON writes v the way all our JSON reports look: <, > and & are escaped,
// so that the text may be put into a page as it is.
func indentJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(true)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
