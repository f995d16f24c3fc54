//go:build linux

package confine

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// graftRoots attaches the writable roots and what is protected in them, the
// shorter path first, so that a root inside a protected folder stays writable
// and a protected folder inside a root does not.
func (v *view) graftRoots() error {
	type place struct {
		name string
		do   func(string) error
	}
	var places []place
	roots := v.p.Roots
	if v.p.Side != "" {
		roots = append(slices.Clone(roots), v.p.Side)
	}
	for _, r := range roots {
		places = append(places, place{r, func(name string) error {
			return v.put(v.sources[name], name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
		}})
	}
	for _, name := range v.p.Protect {
		places = append(places, place{name, v.protect})
	}
	for _, name := range v.p.Hold {
		places = append(places, place{name, func(name string) error { return v.put(v.masks.empty, name, 0) }})
	}
	slices.SortStableFunc(places, func(a, b place) int { return len(a.name) - len(b.name) })
	for _, p := range places {
		if err := p.do(p.name); err != nil {
			return err
		}
	}
	return nil
}

// protect makes a path read-only where it is. As a mount point it can be
// neither renamed nor removed.
func (v *view) protect(name string) error {
	fd, err := v.open(name)
	if err != nil {
		return atMount("opening", name, err)
	}
	defer CloseFD(fd)
	return atMount("protecting", name, v.grafter.graft(fd, fd, readOnlyAttr))
}

// kernelFolders of /sys show the kernel's insides to user 0, who owns them also
// without any capability.
var kernelFolders = []string{"/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/kernel/config", "/sys/fs/pstore",
	"/sys/fs/bpf", "/sys/firmware"}

// cover hides the denied paths, shows what is revealed in them, and covers the
// sockets of the host.
func (v *view) cover() error {
	for _, name := range kernelFolders {
		if v.isFolder(name) {
			if err := v.hide(name, v.masks.deny); err != nil {
				return err
			}
		}
	}
	if err := v.pin(); err != nil {
		return err
	}
	for _, name := range v.p.Deny {
		if err := v.deny(name); err != nil {
			return err
		}
	}
	for _, name := range v.p.Mask {
		if err := v.hide(name, v.masks.none); err != nil {
			return err
		}
	}
	return nil
}

// hide covers a path with a mask. One that cannot be reached needs none.
func (v *view) hide(name string, mask int) error {
	fd, err := v.open(name)
	if err != nil {
		return nil
	}
	defer CloseFD(fd)
	return atMount("covering", name, v.grafter.graft(mask, fd, 0))
}

// pin makes the folders between a root and a denied path in it mount points, so
// that they cannot be renamed: the next sandbox would not find the path there,
// and leave open what was moved.
func (v *view) pin() error {
	var pins []string
	for _, name := range v.p.Deny {
		for _, root := range v.p.Roots {
			if !Below(name, root) {
				continue
			}
			for d := path.Dir(name); d != root && Below(d, root); d = path.Dir(d) {
				pins = append(pins, d)
			}
		}
	}
	slices.Sort(pins) // the outer folder first
	for _, d := range slices.Compact(pins) {
		if slices.Contains(v.p.Roots, d) || slices.Contains(v.p.Protect, d) {
			continue // a mount point already
		}
		fd, err := v.open(d)
		if err != nil {
			continue // the path in it does not exist either
		}
		err = v.grafter.graft(fd, fd, 0)
		CloseFD(fd)
		if err != nil {
			return atMount("pinning", d, err)
		}
	}
	return nil
}

// blanks are settings of build tools that hold credentials and that the tools
// insist on reading: a file that cannot be opened stops every build. They are
// covered with one that says nothing. By the end of the path.
var blanks = map[string]string{
	"/.m2/settings.xml": "<settings/>\n", "/.m2/settings-security.xml": "<settingsSecurity/>\n", "/gradle.properties": "",
	"/NuGet.Config": "<configuration/>\n", "/.npmrc": "", "/.yarnrc.yml": "", "/.pypirc": "", "/pypoetry/auth.toml": "",
	"/.cargo/credentials": "", "/.cargo/credentials.toml": "", "/composer/auth.json": "{}\n", "/.composer/auth.json": "{}\n",
	"/.docker/config.json": "{}\n", "/containers/auth.json": "{}\n", "/.terraformrc": "", "/.netrc": "", "/.gem/credentials": "",
}

// blankFor is what covers a file of that kind.
func blankFor(name string) (text string, ok bool) {
	for end, text := range blanks {
		if strings.HasSuffix(name, end) {
			return text, true
		}
	}
	return "", false
}

func (v *view) deny(name string) error {
	fd, err := v.open(name)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return nil // nothing to read
	case errors.Is(err, unix.EACCES):
		return nil // the commands, with fewer rights, cannot get there either
	case err != nil:
		return atMount("opening the denied path", name, err)
	}
	defer CloseFD(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return atMount("looking at", name, err)
	}
	v.facts.Denied++
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		mask := v.masks.none
		if text, ok := blankFor(name); ok {
			mask = v.masks.blank[text]
		}
		return atMount("covering", name, v.grafter.graft(mask, fd, 0))
	}
	var shown []string
	for _, r := range v.p.Reveal {
		if _, ok := v.sources[r]; ok && Below(r, name) {
			shown = append(shown, r)
		}
	}
	if len(shown) == 0 {
		return atMount("covering", name, v.grafter.graft(v.masks.deny, fd, 0))
	}
	if err := unix.Mount("tmpfs", v.at(name), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,size=1m"); err != nil {
		return atMount("mounting a tmpfs on", name, err)
	}
	for _, r := range shown {
		if err := v.put(v.sources[r], r, readOnlyAttr); err != nil {
			return err
		}
	}
	return atMount("sealing", name, v.grafter.setReadOnly(v.at(name)))
}
