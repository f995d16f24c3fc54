//go:build !linux

package auth

// Traits does without statx.
func (osDisk) Traits(path string) (traits, error) { return plainTraits(path) }
