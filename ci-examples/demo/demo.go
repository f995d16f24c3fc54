// Package demo holds the scratch project and the recorded session of
// `nightshift demo`: a Go test that fails, and a model that finds out why.
package demo

import _ "embed"

// Project is a txtar archive of the files of the repository.
//
//go:embed project.txtar
var Project []byte

// Script is the recorded session.
//
//go:embed script.json
var Script []byte

// Prompt is the task.
const Prompt = "The test of package stock fails. Find out why and fix it."

// Verify is the command that must pass at the end.
const Verify = "go test ./..."
