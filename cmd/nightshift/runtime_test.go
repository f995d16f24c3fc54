package main

import (
	"os"
	"os/user"
	"strconv"
	"testing"
)

// Without HOME, as services have it, the home is the account's.
func TestHomeOfTheAccount(t *testing.T) {
	want := "/"
	if listed, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		want = listed.HomeDir
	}
	for given, home := range map[string]string{"HOME=/given": "/given", "HOME=": want, "HOME=relative": want, "A=b": want} {
		if got := (&runtime{environ: []string{given}}).userHome(); got != home {
			t.Errorf("%s: %q, want %q", given, got, home)
		}
	}
}
