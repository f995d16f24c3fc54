package sandbox

import (
	"fmt"
	"strconv"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// ProcStat is the name of a process and one of its fields in /proc/PID/stat, by
// its number in proc_pid_stat(5), from 3. Processes of other namespaces cannot be
// looked into.
func ProcStat(pid, field int) (name, value string, err error) {
	name, fields, err := confine.ProcStat(strconv.Itoa(pid))
	if err != nil {
		return "", "", err
	}
	if field-3 < 0 || field-3 >= len(fields) {
		return name, "", fmt.Errorf("/proc/%d/stat has no field %d", pid, field)
	}
	return name, fields[field-3], nil
}
