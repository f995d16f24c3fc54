package auth

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOddFiles are things with the name auth.json that are not logins. None hangs.
func TestOddFiles(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"folder":        func(p string) error { return os.Mkdir(p, 0o700) },
		"fifo":          func(p string) error { return unix.Mkfifo(p, 0o600) },
		"dangling link": func(p string) error { return os.Symlink("/nowhere/at/all", p) },
		"link circle":   func(p string) error { return os.Symlink(p, p) },
		"too long":      func(p string) error { return os.WriteFile(p, []byte(strings.Repeat(" ", maxBundle+1)), 0o600) },
		"device":        func(p string) error { return os.Symlink("/dev/zero", p) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, time.Hour)
			if err := os.Remove(r.path()); err != nil {
				t.Fatal(err)
			}
			if err := make(r.path()); err != nil {
				t.Skip(err)
			}
			_, err := Load(context.Background(), r.src)
			switch classOf(t, err) {
			case ClassCorrupt, ClassMissing, ClassUnreadable:
			default:
				t.Error(err)
			}
		})
	}
}

// TestForeignRecoveryCopy shows that a copy which does not continue auth.json is
// neither used nor deleted.
func TestForeignRecoveryCopy(t *testing.T) {
	r := newRig(t, time.Hour)
	copy := r.path() + recoverySuffix + "0123456789abcdef"
	if err := os.WriteFile(copy, r.tokens.Login(2*time.Hour), 0o600); err != nil {
		t.Fatal(err)
	}
	before := r.read()
	if _, err := authorize(r.load()); err != nil || r.read() != before {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(copy); err != nil {
		t.Error("the copy was deleted")
	}
	// It is named when there is a reason to look.
	if err := os.WriteFile(r.path()+recoverySuffix+"ffffffffffffffff", []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	c := r.load()
	if n := c.Notices(); len(n) != 1 || n[0].Class != "auth_recovery_copy" {
		t.Errorf("%+v", n)
	}
}

// TestEmptiedFile shows that a copy does not bring back a login that somebody
// removed.
func TestEmptiedFile(t *testing.T) {
	r := newRig(t, time.Hour)
	if err := os.WriteFile(r.path()+recoverySuffix+"0123456789abcdef", []byte(r.read()), 0o600); err != nil {
		t.Fatal(err)
	}
	r.write(nil)
	if _, err := Load(context.Background(), r.src); classOf(t, err) != ClassCorrupt {
		t.Error(err)
	}
	if err := os.Remove(r.path()); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(context.Background(), r.src); classOf(t, err) != ClassMissing {
		t.Error(err)
	}
}
