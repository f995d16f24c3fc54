//go:build !linux

// Package confine is the inside of a sandbox. There is none on this system.
package confine
