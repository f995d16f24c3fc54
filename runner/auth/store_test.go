package auth

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStoredByRename is the plain case: everything but the four values is as it
// was, and nothing lies about.
func TestStoredByRename(t *testing.T) {
	r := newRig(t, -time.Hour)
	old := r.read()
	header, err := authorize(r.load())
	if err != nil {
		t.Fatal(err)
	}
	now := r.read()
	checkKept(t, []byte(old), []byte(now))
	got := tokensOf(t, now)
	if got["refresh_token"] != r.tokens.Refresh() || header != "Bearer "+got["access_token"] {
		t.Errorf("stored %v, used %q", got, header)
	}
	if fi, err := os.Stat(r.path()); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	if left := r.beside(); left != nil {
		t.Errorf("left behind: %q", left)
	}
	e := r.refreshes()
	if len(e) != 1 || e[0].Outcome != "refreshed" || e[0].Persisted != byRename || e[0].Reason != reasonExpiry || e[0].Path != r.path() {
		t.Errorf("%+v", e)
	}
}

// TestModeAndOwnerStay shows that a refresh does not change who may read the
// file: loose permissions are reported, and tightened on request only.
func TestModeAndOwnerStay(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o640, 0o644, 0o400} {
		r := newRig(t, -time.Hour)
		if err := os.Chmod(r.path(), mode); err != nil {
			t.Fatal(err)
		}
		uid := os.Geteuid()
		if uid == 0 {
			uid = 12345
			if err := os.Chown(r.path(), uid, 54321); err != nil {
				t.Fatal(err)
			}
		}
		c := r.load()
		loose := len(c.Notices()) == 1 && c.Notices()[0].Class == "auth_mode"
		if loose != (mode&0o077 != 0) {
			t.Errorf("mode %o: notices %+v", mode, c.Notices())
		}
		if _, err := authorize(c); err != nil {
			t.Fatalf("mode %o: %v", mode, err)
		}
		fi, err := os.Stat(r.path())
		if err != nil {
			t.Fatal(err)
		}
		if st := fi.Sys().(*syscall.Stat_t); fi.Mode().Perm() != mode || int(st.Uid) != uid || st.Ino == 0 {
			t.Errorf("mode %o uid %d, want %o uid %d", fi.Mode().Perm(), st.Uid, mode, uid)
		}
		if changed, err := Tighten(r.src.Home); err != nil || changed != loose {
			t.Errorf("Tighten: %v %v", changed, err)
		}
		if fi, err := os.Stat(r.path()); err != nil || fi.Mode()&0o077 != 0 {
			t.Errorf("after Tighten: %v %v", fi.Mode(), err)
		}
	}
}

// TestSymlink shows that the file behind a link is replaced and the link stays,
// also through several links and when the folder is a link.
func TestSymlink(t *testing.T) {
	r := newRig(t, -time.Hour)
	real := t.TempDir()
	if err := os.Rename(r.path(), filepath.Join(real, "login.json")); err != nil {
		t.Fatal(err)
	}
	for _, l := range [][2]string{
		{filepath.Join(real, "login.json"), filepath.Join(real, "second")},
		{"second", filepath.Join(real, "third")},
		{filepath.Join(real, "third"), r.path()},
	} {
		if err := os.Symlink(l[0], l[1]); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(t.TempDir(), "home-link")
	if err := os.Symlink(r.src.Home, home); err != nil {
		t.Fatal(err)
	}
	r.src.Home = home
	if _, err := authorize(r.load()); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(r.path()); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v %v", fi, err)
	}
	if fi, err := os.Lstat(filepath.Join(real, "login.json")); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("%v %v", fi, err)
	}
	if got := tokensOf(t, r.read())["refresh_token"]; got != r.tokens.Refresh() {
		t.Error(got)
	}
}

// TestHardLink shows that all names of a file get the new login.
func TestHardLink(t *testing.T) {
	r := newRig(t, -time.Hour)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Link(r.path(), other); err != nil {
		t.Skip(err)
	}
	if _, err := authorize(r.load()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(other)
	if err != nil || string(b) != r.read() || tokensOf(t, string(b))["refresh_token"] != r.tokens.Refresh() {
		t.Errorf("the other name has an old login (%v)", err)
	}
	if e := r.refreshes(); e[0].Persisted != inPlace {
		t.Errorf("%+v", e)
	}
	if left := r.beside(); left != nil {
		t.Errorf("left behind: %q", left)
	}
}

// TestMounts are the file systems of containers, for real.
func TestMounts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(home, elsewhere string) []string
		class string
		how   string
		ok    bool // ReadOnlyOK, with a write-back
		where string
	}{
		{
			name:  "read-only folder",
			setup: func(home, _ string) []string { return []string{"robind " + home} },
			class: ClassNotWritable,
		},
		{
			name:  "read-only folder, allowed",
			setup: func(home, _ string) []string { return []string{"robind " + home} },
			ok:    true, how: byCommand,
		},
		{
			name:  "bind-mounted file",
			setup: func(home, e string) []string { return []string{"bind " + e + " " + home + "/auth.json"} },
			how:   inPlace, where: "elsewhere",
		},
		{
			name: "bind-mounted file in a read-only root",
			setup: func(home, e string) []string {
				return []string{"robind " + home, "bind " + e + " " + home + "/auth.json"}
			},
			how: inPlace, where: "elsewhere",
		},
		{
			name: "read-only bind-mounted file",
			setup: func(home, e string) []string {
				return []string{"bind " + e + " " + home + "/auth.json", "robind " + home + "/auth.json"}
			},
			class: ClassNotWritable,
		},
		{
			name:  "full disk",
			setup: func(home, _ string) []string { return []string{"tmpfs " + home + " size=64k", "fill " + home} },
			class: ClassNotWritable,
		},
		{
			name:  "small disk",
			setup: func(home, _ string) []string { return []string{"tmpfs " + home + " size=64k"} },
			how:   byRename,
		},
		{
			name:  "no inodes",
			setup: func(home, _ string) []string { return []string{"tmpfs " + home + " size=1m,nr_inodes=2"} },
			class: ClassNotWritable,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, -time.Hour)
			before := r.read()
			elsewhere := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(elsewhere, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			spec := childSpec{Home: r.src.Home, URL: r.tokens.URL, Setup: tc.setup(r.src.Home, elsewhere), ReadOnlyOK: tc.ok}
			if tc.ok {
				spec.Writeback = filepath.Join(t.TempDir(), "store")
			}
			got := runChild(t, spec)
			if got.Class != tc.class {
				t.Fatalf("class %q (%s), want %q", got.Class, got.Message, tc.class)
			}
			if tc.class != "" {
				if n := len(r.tokens.Requests()); n != 0 {
					t.Errorf("%d requests: the refresh token was spent", n)
				}
				if got.File != before {
					t.Errorf("auth.json changed:\n%s", got.File)
				}
				return
			}
			if len(got.Refreshed) != 1 || got.Refreshed[0].Persisted != tc.how {
				t.Errorf("%+v", got.Refreshed)
			}
			stored := got.File
			if tc.ok {
				b, err := os.ReadFile(spec.Writeback)
				if err != nil {
					t.Fatal(err)
				}
				stored = string(b)
				if strings.Join(got.Notices, " ") != "auth_not_stored" {
					t.Errorf("notices %q", got.Notices)
				}
			}
			if tokensOf(t, stored)["refresh_token"] != r.tokens.Refresh() {
				t.Errorf("stored:\n%s", stored)
			}
			if tc.where != "" {
				if b, err := os.ReadFile(elsewhere); err != nil || string(b) != got.File {
					t.Errorf("the mounted file did not change (%v)", err)
				}
			}
			for _, n := range got.Beside {
				if strings.Contains(n, recoverySuffix) {
					t.Errorf("left behind: %s", n)
				}
			}
		})
	}
}

// TestReadOnlyFolderOfUser is the read-only folder without mounts, for an
// ordinary user: the file is written where it is.
func TestReadOnlyFolderOfUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root writes into every folder; TestMounts has the same with mounts")
	}
	r := newRig(t, -time.Hour)
	if err := os.Chmod(r.src.Home, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(r.src.Home, 0o700) })
	if _, err := authorize(r.load()); err != nil {
		t.Fatal(err)
	}
	if e := r.refreshes(); e[0].Persisted != inPlace {
		t.Errorf("%+v", e)
	}
}

// TestImmutable is a file with chattr +i, which not even root can rename over.
func TestImmutable(t *testing.T) {
	r := newRig(t, -time.Hour)
	f, err := os.Open(r.path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const immutable = 0x10 // FS_IMMUTABLE_FL
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|immutable))
	}
	if err != nil {
		t.Skipf("no immutable files here: %v", err)
	}
	defer func() { _ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)) }()
	_, err = authorize(r.load())
	if classOf(t, err) != ClassNotWritable || len(r.tokens.Requests()) != 0 {
		t.Errorf("%v, %d requests", err, len(r.tokens.Requests()))
	}
}

// TestFaults are errors that no preparation foresees, at each place. Before the
// token is spent: nothing is sent. After it: the new login is somewhere, and the
// next start finds it or the message names it.
func TestFaults(t *testing.T) {
	type when struct {
		op   string
		name string // part of the file's name
		nth  int
		err  error
	}
	for _, tc := range []struct {
		name  string
		fault []when
		link  bool // hard link: the way in place
		bar   string
		class string
		spent bool
		how   string
	}{
		{name: "no locks", fault: []when{{"flock", "", 0, unix.ENOLCK}}, class: ClassLockUnavailable},
		{name: "locks not supported", fault: []when{{"flock", "", 0, unix.EOPNOTSUPP}}, class: ClassLockUnavailable},
		{name: "no lock on the file itself", fault: []when{{"flock", fileName, 2, unix.ENOLCK}}, class: ClassLockUnavailable},
		{name: "no lock file", fault: []when{{"open", lockSuffix, 0, unix.EACCES}}, spent: true, how: byRename},
		{name: "no space for the copy", fault: []when{{"write", recoverySuffix, 0, unix.ENOSPC}}, class: ClassNotWritable},
		{name: "quota", fault: []when{{"sync", recoverySuffix, 1, unix.EDQUOT}}, class: ClassNotWritable},
		{name: "no new names", fault: []when{{"open", recoverySuffix, 0, unix.EMFILE}}, class: ClassNotWritable},
		{name: "no space in the file", link: true, fault: []when{{"write", fileName, 0, unix.ENOSPC}}, class: ClassNotWritable},
		{name: "rename busy", fault: []when{{"rename", "", 0, unix.EBUSY}}, spent: true, how: inPlace},
		{name: "rename over devices", fault: []when{{"rename", "", 0, unix.EXDEV}}, spent: true, how: inPlace},
		{name: "copy breaks after spending", fault: []when{{"sync", recoverySuffix, 2, unix.EIO}}, spent: true, how: inPlace},
		{name: "file breaks after spending", link: true, fault: []when{{"sync", fileName, 4, unix.EIO}}, spent: true, class: ClassNotStored, how: byRecovery},
		{name: "rename and file break", fault: []when{{"rename", "", 0, unix.EIO}, {"open", fileName, 0, unix.EIO}}, spent: true, class: ClassNotStored, how: byRecovery},
		{name: "everything breaks", fault: []when{{"truncate", recoverySuffix, 0, unix.EIO}, {"open", fileName, 0, unix.EIO}}, spent: true, class: ClassNotStored, how: byRecovery},
		{name: "journal breaks", bar: recoverySuffix, fault: []when{{"sync", fileName, 0, unix.EIO}}, class: ClassNotWritable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, -time.Hour)
			before := r.read()
			if tc.link {
				if err := os.Link(r.path(), filepath.Join(t.TempDir(), "other")); err != nil {
					t.Skip(err)
				}
			}
			seen := map[int]int{}
			r.src.RescueDir = t.TempDir()
			r.src.disk = &faultyDisk{disk: osDisk{}, bar: tc.bar, fault: func(op, path string, _ int) error {
				for i, w := range tc.fault {
					base := filepath.Base(path)
					hit := op == w.op && (strings.Contains(base, w.name) && (w.name != fileName || base == fileName))
					if w.op == "flock" && w.name == fileName {
						hit = op == w.op && base == fileName
						w.nth = 0
					}
					if !hit {
						continue
					}
					if seen[i]++; w.nth == 0 || seen[i] == w.nth {
						return w.err
					}
				}
				return nil
			}}
			c := r.load()
			header, err := authorize(c)
			if got := classOf(t, err); got != tc.class {
				t.Fatalf("%q %v, want %q", got, err, tc.class)
			}
			if n := len(r.tokens.Requests()); (n > 0) != tc.spent {
				t.Fatalf("%d requests", n)
			}
			if !tc.spent {
				if strings.TrimRight(r.read(), "\t") != before {
					t.Errorf("auth.json changed:\n%q", r.read())
				}
				return
			}
			if e := r.refreshes(); len(e) != 1 || e[0].Persisted != tc.how {
				t.Fatalf("%+v", e)
			}
			if tc.class != "" && header != "" {
				t.Error("a token that is not stored was used")
			}
			// The disk is well again.
			r.src.disk = nil
			fresh := r.load()
			if got := fresh.login.bundle.refresh.Reveal(); got != r.tokens.Refresh() {
				path := r.refreshes()[0].Path
				b, readErr := os.ReadFile(path)
				if readErr != nil || tokensOf(t, string(b))["refresh_token"] != r.tokens.Refresh() || !strings.Contains(err.Error(), path) {
					t.Errorf("the new login is nowhere: next start has %q, %s: %v", got, path, readErr)
				}
			}
		})
	}
}

// TestWrongOwner: an ordinary user, a file of root that all may read, and a
// folder of the user. A rename would work and would change the owner.
func TestWrongOwner(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.src.disk = &ownedDisk{osDisk{}}
	_, err := authorize(r.load())
	if os.Geteuid() == 0 {
		// Root writes into the file as it is.
		if err != nil || r.refreshes()[0].Persisted != inPlace {
			t.Errorf("%v %+v", err, r.refreshes())
		}
	} else if err != nil {
		t.Error(err)
	}
	r = newRig(t, -time.Hour)
	r.src.disk = &faultyDisk{disk: &ownedDisk{osDisk{}}, fault: func(op, path string, _ int) error {
		if op == "open" && filepath.Base(path) == fileName {
			return unix.EACCES
		}
		return nil
	}}
	_, err = authorize(r.load())
	if classOf(t, err) != ClassWrongOwner || len(r.tokens.Requests()) != 0 {
		t.Errorf("%v, %d requests", err, len(r.tokens.Requests()))
	}
	if left := r.beside(); left != nil {
		t.Errorf("left behind: %q", left)
	}
}

// ownedDisk says that auth.json belongs to somebody else, whom a copy cannot be
// given to.
type ownedDisk struct{ disk }

func (d *ownedDisk) Traits(path string) (traits, error) {
	t, err := d.disk.Traits(path)
	if filepath.Base(path) == fileName {
		t.uid += 1000
	}
	return t, err
}

func (d *ownedDisk) Open(path string, flag int, perm fs.FileMode) (diskFile, error) {
	f, err := d.disk.Open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &ownedFile{f.(*os.File)}, nil
}

func (d *ownedDisk) Flock(f diskFile) error {
	switch f := f.(type) {
	case *ownedFile:
		return d.disk.Flock(f.File)
	default:
		return d.disk.Flock(f)
	}
}

type ownedFile struct{ *os.File }

func (*ownedFile) Chown(int, int) error { return unix.EPERM }

// TestUnreadable is a file that the system does not let us read.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	r := newRig(t, time.Hour)
	if err := os.Chmod(r.path(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(context.Background(), r.src); classOf(t, err) != ClassUnreadable {
		t.Error(err)
	}
}

// TestErrorsUnwrap shows that the reason of the operating system is there for
// programs.
func TestErrorsUnwrap(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.src.disk = &faultyDisk{disk: osDisk{}, fault: func(op, _ string, _ int) error {
		if op == "flock" {
			return unix.ENOLCK
		}
		return nil
	}}
	if _, err := authorize(r.load()); !errors.Is(err, unix.ENOLCK) {
		t.Error(err)
	}
}

// TestTraitsWithoutStatx: the way for old container runtimes sees the same.
func TestTraitsWithoutStatx(t *testing.T) {
	for _, path := range []string{newRig(t, time.Hour).path(), os.TempDir()} {
		want, err := osDisk{}.Traits(path)
		if err != nil {
			t.Fatal(err)
		}
		want.mountRoot = false // a temporary folder may be a mount
		if got, err := plainTraits(path); err != nil || got != want {
			t.Errorf("%s: %+v (%v), want %+v", path, got, err, want)
		}
	}
	if _, err := plainTraits("/nowhere/at/all"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
