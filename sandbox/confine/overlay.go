//go:build linux

package confine

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Overlay is a folder that begins with the content of another: At shows Lower,
// and what is changed goes to Private. Both At and Private are made by the
// runner.
type Overlay struct{ At, Lower, Private string }

// mountOverlays lays each folder over its lower one. It happens in the mount
// namespace of the sandbox before the roots are taken, so that they carry it. An
// overlay that cannot be had leaves At as it is: an empty folder is only slower.
func (v *view) mountOverlays() {
	for _, o := range v.p.Overlays {
		if err := mountOverlay(o); err != nil {
			v.facts.NoOverlay = append(v.facts.NoOverlay, o.At+": "+err.Error())
		}
	}
}

func mountOverlay(o Overlay) error {
	if strings.ContainsAny(o.Lower+o.Private, ",:\\") {
		return unix.EINVAL // its options are a list with these separators
	}
	upper, work := o.Private+"/upper", o.Private+"/work"
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	// userxattr: marks are kept where a user namespace may write them.
	options := "lowerdir=" + o.Lower + ",upperdir=" + upper + ",workdir=" + work + ",userxattr"
	return unix.Mount("overlay", o.At, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
}
