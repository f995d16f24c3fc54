package sandbox

import (
	"strconv"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// ProcStat is the name of a process and the fields of /proc/PID/stat after it,
// the first of which is number 3 of proc_pid_stat(5), the state. Processes of
// other namespaces cannot be looked into.
func ProcStat(pid int) (name string, fields []string, err error) {
	return confine.ProcStat(strconv.Itoa(pid))
}
