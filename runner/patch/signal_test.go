package patch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// helperVariable makes the test binary a helper.
const helperVariable = "NIGHTSHIFT_TEST_PATCH_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		os.Exit(Helper(nil, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// A helper that is asked to end while it writes finishes its patch: neither half
// of one nor an unfinished file stays behind.
func TestHelperFinishesWhatItBegan(t *testing.T) {
	const files = 400
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("*** Begin Patch\n")
	for i := range files {
		fmt.Fprintf(&text, "*** Add File: f%d\n+line\n", i)
	}
	text.WriteString("*** End Patch\n")
	request, err := json.Marshal(Request{Patch: text.String(), Scope: Scope{Workdir: dir, Roots: []string{dir}}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"=1")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	answers.Buffer(nil, 1<<20)
	if !answers.Scan() || !strings.Contains(answers.Text(), Verified) {
		t.Errorf("the first answer is %.200q", answers.Text())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if !answers.Scan() || !strings.Contains(answers.Text(), Done) {
		t.Errorf("the last answer is %.200q", answers.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(dir + "/.patch-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if made, err := filepath.Glob(dir + "/f*"); err != nil || len(made) != files {
		t.Errorf("%d files of %d, %v", len(made), files, err)
	}
}
