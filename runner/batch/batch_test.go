package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/sandbox"
)

const workerVar = "NIGHTSHIFT_BATCH_TEST_WORKER"

func TestMain(m *testing.M) {
	sandbox.Init(nil)
	if out := os.Getenv(workerVar); out != "" {
		os.Exit(worker(out))
	}
	goleak.VerifyTestMain(m)
}

func tasksN(n int) []Task {
	var out []Task
	for i := range n {
		out = append(out, Task{ID: fmt.Sprintf("task %04d", i), Repo: "/r", Prompt: "p", Line: i + 1})
	}
	return out
}

func options(out string, n int) Options {
	return Options{Tasks: tasksN(n), Out: out, Workers: 2, Owner: fmt.Sprintf("p%d-%d", os.Getpid(), rand.Int64()), Lease: time.Second,
		Checkout: func(_ context.Context, _ Task, dir string) (string, error) { return "base", os.MkdirAll(dir, 0o755) },
		Work: func(context.Context, Task, Workspace) (Result, error) {
			return Result{Outcome: "success", Class: "completed"}, nil
		}}
}

// worker is one process of the kill test: it logs each finished task.
func worker(out string) int {
	o := options(out, 1000)
	o.Work = func(_ context.Context, t Task, w Workspace) (Result, error) {
		time.Sleep(time.Millisecond)
		return Result{Outcome: "success", Class: "completed", Final: t.ID}, os.WriteFile(filepath.Join(w.Out, "made"), []byte(t.ID), 0o644)
	}
	if _, err := Run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Thirty-two processes share a folder while some of them are killed at random
// moments. In the end every task has exactly one result.
func TestKilledProcessesLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("thirty-two processes")
	}
	out := t.TempDir()
	var wg sync.WaitGroup
	var kills atomic.Int32
	for i := range 32 {
		wg.Go(func() {
			for {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), workerVar+"="+out)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 && kills.Load() < 60 {
					time.Sleep(time.Duration(50+rand.IntN(400)) * time.Millisecond)
					if cmd.Process.Kill() == nil {
						kills.Add(1)
					}
				}
				err := cmd.Wait()
				if err == nil {
					return
				}
				if !strings.Contains(err.Error(), "killed") {
					t.Errorf("worker %d: %v\n%s", i, err, stderr.String())
					return
				}
			}
		})
	}
	wg.Wait()
	if kills.Load() == 0 {
		t.Error("nothing was killed, so nothing was proven")
	}
	data, err := os.Open(filepath.Join(out, resultFile))
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	rs, err := DecodeResults(data)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, r := range rs {
		seen[r.ID]++
		made, err := os.ReadFile(filepath.Join(out, r.Dir, "made"))
		if err != nil || string(made) != r.ID {
			t.Errorf("%s: its work is not there: %v", r.ID, err)
		}
	}
	if len(rs) != 1000 || len(seen) != 1000 {
		t.Errorf("%d results of %d tasks, want 1000", len(rs), len(seen))
	}
}

func TestFailuresStopNobody(t *testing.T) {
	o := options(t.TempDir(), 10)
	o.Work = func(_ context.Context, task Task, _ Workspace) (Result, error) {
		switch task.ID {
		case "task 0003":
			return Result{}, errors.New("broken")
		case "task 0004":
			return Result{Outcome: "failed", Class: "failed", ExitCode: 1}, nil
		}
		return Result{Outcome: "success"}, nil
	}
	sum, err := Run(context.Background(), o)
	if err != nil || len(sum.Results) != 10 || sum.Ran != 10 {
		t.Fatalf("%+v, %v", sum, err)
	}
	// A second run does nothing; with RetryFailed it runs exactly the two.
	sum, err = Run(context.Background(), o)
	if err != nil || sum.Ran != 0 {
		t.Errorf("the second run ran %d tasks, %v", sum.Ran, err)
	}
	o.RetryFailed = true
	sum, err = Run(context.Background(), o)
	if err != nil || sum.Ran != 2 {
		t.Errorf("the retry ran %d tasks, %v", sum.Ran, err)
	}
	for _, r := range sum.Results {
		if r.ID == "task 0003" && r.Attempt != 2 {
			t.Errorf("attempt %d, want 2", r.Attempt)
		}
	}
}

func TestChangedTaskRunsAgain(t *testing.T) {
	o := options(t.TempDir(), 3)
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	o.Tasks[1].Prompt = "another"
	sum, err := Run(context.Background(), o)
	if err != nil || sum.Ran != 1 {
		t.Errorf("ran %d, %v; want 1", sum.Ran, err)
	}
}

func TestStoppedBatchGoesOn(t *testing.T) {
	o := options(t.TempDir(), 8)
	ctx, cancel := context.WithCancel(context.Background())
	var n atomic.Int32
	o.Work = func(ctx context.Context, _ Task, _ Workspace) (Result, error) {
		if n.Add(1) == 4 {
			cancel()
			<-ctx.Done()
			return Result{Outcome: "interrupted", ExitCode: 143}, nil
		}
		return Result{Outcome: "success"}, nil
	}
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	before := n.Load()
	sum, err := Run(context.Background(), o)
	if err != nil || len(sum.Results) != 8 || int(before)+sum.Ran < 8 {
		t.Errorf("%+v, %v", sum, err)
	}
	for _, r := range sum.Results {
		if !r.OK() {
			t.Errorf("%s kept the interruption as its result", r.ID)
		}
	}
}

func TestMergeIsPure(t *testing.T) {
	var rs []Result
	for i := range 40 {
		r := Result{ID: fmt.Sprint(i % 15), Outcome: "success", Attempt: i % 4, Message: fmt.Sprint(i)}
		if i%3 == 0 {
			r.Outcome, r.ExitCode = "failed", 1
		}
		rs = append(rs, r)
	}
	want, err := EncodeResults(Merge(rs))
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		rand.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
		k := rand.IntN(len(rs))
		m := Merge(rs[:k], rs[k:])
		got, err := EncodeResults(Merge(m, m, rs[:k]))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("another order gave another answer: %v", err)
		}
	}
}

// A panic in one task is its result.
func TestPanicIsAResult(t *testing.T) {
	o := options(t.TempDir(), 3)
	o.Work = func(_ context.Context, task Task, _ Workspace) (Result, error) {
		if task.ID == "task 0001" {
			panic("oops")
		}
		return Result{Outcome: "success"}, nil
	}
	sum, err := Run(context.Background(), o)
	if err != nil || len(sum.Results) != 3 || sum.Results[1].ExitCode != 70 || !strings.Contains(sum.Results[1].Message, "oops") {
		t.Errorf("%+v, %v", sum, err)
	}
}

// Attempts keep their reports; only checkouts that are no longer needed go.
func TestAttempts(t *testing.T) {
	o := options(t.TempDir(), 2)
	fail := true
	o.Work = func(_ context.Context, task Task, w Workspace) (Result, error) {
		r := Result{Outcome: "success"}
		if fail && task.ID == "task 0000" {
			r = Result{Outcome: "failed", ExitCode: 1}
		}
		deep := filepath.Join(w.Tree, "read-only", "deep")
		return r, errors.Join(os.MkdirAll(deep, 0o755), os.WriteFile(filepath.Join(deep, "f"), nil, 0o444), os.Chmod(deep, 0o555),
			os.Chmod(filepath.Dir(deep), 0o555), os.WriteFile(filepath.Join(w.Out, "report"), nil, 0o644))
	}
	sum, err := Run(context.Background(), o)
	if err != nil || sum.Results[0].Tree == "" || sum.Results[1].Tree != "" {
		t.Fatalf("%+v, %v", sum, err)
	}
	first := sum.Results[0]
	if _, err := os.Stat(filepath.Join(o.Out, first.Tree)); err != nil {
		t.Errorf("the checkout of a failed task is gone: %v", err)
	}
	fail, o.RetryFailed, o.KeepTrees = false, true, true
	if sum, err = Run(context.Background(), o); err != nil || sum.Results[0].Attempt != 2 || sum.Results[0].Tree == "" || !sum.Results[0].OK() {
		t.Fatalf("%+v, %v", sum, err)
	}
	if _, err := os.Stat(filepath.Join(o.Out, first.Dir, "report")); err != nil {
		t.Errorf("the report of the first attempt is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(o.Out, first.Tree)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkout of the first attempt is still there: %v", err)
	}
	for _, r := range sum.Results {
		if r.Tree != "" {
			if err := sandbox.RemoveTree(filepath.Join(o.Out, r.Tree)); err != nil {
				t.Error(err)
			}
		}
	}
}
