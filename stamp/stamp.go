package stamp
import ("os";"strconv";"time";"syscall";"sync")
var mu sync.Mutex
var buf []byte
var base int64
func init(){ base,_=strconv.ParseInt(os.Getenv("NSTRACE"),10,64); S("init stamp") }
func S(n string){ if base==0 {return}; t:=time.Now().UnixNano()-base; mu.Lock(); buf=append(buf,(strconv.FormatInt(t/1000,10)+" "+strconv.Itoa(syscall.Gettid())+" "+n+"\n")...); mu.Unlock() }
func Dump(){ if base!=0 {os.WriteFile("/tmp/ns/lead/stamps",buf,0600)} }
