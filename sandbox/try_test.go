package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	ws := t.TempDir()
	t0 := time.Now()
	b, err := Open(context.Background(), Spec{Mode: WorkspaceWrite, Workspace: ws, ProtectNames: []string{".git", ".codex"}, Require: DefaultRequire})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("open", time.Since(t0))
	fmt.Printf("%+v\n", b.Report())
	for i := range 5 {
		t0 = time.Now()
		p, err := b.Start(context.Background(), Command{Argv: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.Wait()
		fmt.Println(i, x, err, time.Since(t0))
	}
	p, err := b.Start(context.Background(), Command{Argv: []string{"sh", "-c", os.Getenv("TRY")}})
	if err != nil {
		t.Fatal(err)
	}
	o, _ := io.ReadAll(p.Output())
	x, err := p.Wait()
	fmt.Printf("%s%v %v\n", o, x, err)
	fmt.Println(b.Close())
}
