//go:build linux

package confine

import (
	"reflect"
	"testing"
)

// Landlock repeats what the mounts of a side command say: of what commands may
// write nothing is left.
func TestPlanOfSideCommands(t *testing.T) {
	in := &initProcess{side: 7, plan: Plan{Confined: true, Namespaces: true, Roots: []string{"/ws", "/more"}, Tmp: "/x", TmpWrite: true,
		Sockets: []string{"/s"}, Deny: []string{"/d"}, Side: "/side"}}
	if p := in.planOf(&Request{}); p != &in.plan {
		t.Errorf("the plan of a usual command is %+v", p)
	}
	want := in.plan
	want.Roots, want.Sockets, want.TmpWrite = []string{"/proc/self/fd/7"}, nil, false
	if got := in.planOf(&Request{Side: true}); !reflect.DeepEqual(*got, want) {
		t.Errorf("the plan of a side command is %+v", got)
	}
	if len(in.plan.Roots) != 2 || !in.plan.TmpWrite {
		t.Error("the plan of the others was changed")
	}
}
