package event

import _ "embed"

// Schema is the JSON Schema (draft 2020-12) of one line of the event log. New
// kinds and fields may appear; none that is described there changes its
// meaning.
//
//go:embed schema.json
var Schema []byte
