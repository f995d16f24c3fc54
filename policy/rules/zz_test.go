package rules
import ("testing";"os";"strconv")
func TestZZ(t *testing.T){ s,_ := strconv.Unquote(os.Getenv("ZZ")); set:=strict(t); t.Logf("%q %+v", s, set.Shell(s,"/bin/bash",true)); t.Logf("%+v", set.Shell(s+"\nuname","/bin/bash",true)) }
