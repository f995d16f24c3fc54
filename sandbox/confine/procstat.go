package confine

import (
	"fmt"
	"os"
	"strings"
)

// ProcStat reads /proc/PID/stat of proc_pid_stat(5): the name of a process and
// the fields after it, of which the first is number 3, its state. pid may be
// "self".
func ProcStat(pid string) (name string, fields []string, err error) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", nil, err
	}
	// The name stands in parentheses and may hold anything, parentheses too.
	text := string(b)
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return "", nil, fmt.Errorf("/proc/%s/stat has no name field", pid)
	}
	return text[open+1 : end], strings.Fields(text[end+1:]), nil
}
