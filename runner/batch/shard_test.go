package batch

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestShardsPartition(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 32} {
		counts := make([]int, n)
		for _, task := range tasksN(2000) {
			owners := 0
			for i := range n {
				if (Shard{i, n}).Has(task.ID) {
					owners++
					counts[i]++
				}
			}
			if owners != 1 {
				t.Fatalf("%s has %d owners of %d", task.ID, owners, n)
			}
		}
		if low := slices.Min(counts); low < 2000/n/2 {
			t.Errorf("%d shards are uneven: %v", n, counts)
		}
	}
}

// Growing the count moves only tasks that go to the new shard.
func TestShardsAreStable(t *testing.T) {
	for _, task := range tasksN(500) {
		for i := range 4 {
			if (Shard{i, 5}).Has(task.ID) && !(Shard{i, 4}).Has(task.ID) {
				t.Fatalf("%s moved between old shards", task.ID)
			}
		}
	}
}

func TestAutoShard(t *testing.T) {
	for _, tc := range []struct {
		env  string
		want string // index/count from 0, or "error: text"
	}{
		{"", "0/1"},
		{"CI_NODE_INDEX=2 CI_NODE_TOTAL=5", "1/5"},
		{"CI_NODE_INDEX=2", "error: CI_NODE_TOTAL"},
		{"CI_NODE_TOTAL=5", "error: CI_NODE_INDEX"},
		{"CI_NODE_TOTAL=1", "0/1"}, // every GitLab job has it
		{"BUILDKITE_PARALLEL_JOB=0 BUILDKITE_PARALLEL_JOB_COUNT=3", "0/3"},
		{"BUILDKITE_PARALLEL_JOB=3 BUILDKITE_PARALLEL_JOB_COUNT=3", "error: outside"},
		{"CIRCLE_NODE_INDEX=1 CIRCLE_NODE_TOTAL=2", "1/2"},
		{"SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=5", "2/3"},
		{"SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_COUNT=3", "0/3"},
		{"SLURM_ARRAY_TASK_ID=9 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_STEP=4", "2/3"},
		{"SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_STEP=4", "error: steps of 4"},
		{"SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=x", "error: not a number"},
		{"SYSTEM_JOBPOSITIONINPHASE=3 SYSTEM_TOTALJOBSINPHASE=3", "2/3"},
		{"SYSTEM_TOTALJOBSINPHASE=3", "error: SYSTEM_JOBPOSITIONINPHASE"},
		{"BITBUCKET_PARALLEL_STEP=0 BITBUCKET_PARALLEL_STEP_COUNT=2", "0/2"},
		{"SEMAPHORE_JOB_INDEX=2 SEMAPHORE_JOB_COUNT=2", "1/2"},
		{"AWS_BATCH_JOB_ARRAY_INDEX=5 AWS_BATCH_JOB_ARRAY_SIZE=9", "5/9"},
		{"NIGHTSHIFT_SHARD_INDEX=1 NIGHTSHIFT_SHARD_COUNT=2 CIRCLE_NODE_INDEX=0 CIRCLE_NODE_TOTAL=1", "1/2"},
		{"JOB_COMPLETION_INDEX= NIGHTSHIFT_SHARD_COUNT=6", "error: half a pair"},
		{"JOB_COMPLETION_INDEX=4 NIGHTSHIFT_SHARD_COUNT=6", "4/6"},
		{"JOB_COMPLETION_INDEX=4", "error: NIGHTSHIFT_SHARD_COUNT"},
		{"NIGHTSHIFT_SHARD_COUNT=6", "error: half a pair"},
		{"NIGHTSHIFT_SHARD_INDEX=0 NIGHTSHIFT_SHARD_COUNT=6", "0/6"},
		{"CI_NODE_INDEX=x CI_NODE_TOTAL=5", "error: not a number"},
		{"CI_NODE_INDEX=0 CI_NODE_TOTAL=5", "error: outside"},
	} {
		env := map[string]string{}
		for _, e := range strings.Fields(tc.env) {
			k, v, _ := strings.Cut(e, "=")
			env[k] = v
		}
		sh, _, err := AutoShard(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
		got := strconv.Itoa(sh.Index) + "/" + strconv.Itoa(sh.Count)
		if err != nil {
			got = "error: " + err.Error()
		}
		if text, bad := strings.CutPrefix(tc.want, "error: "); bad && !strings.Contains(got, text) || !bad && got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.env, got, tc.want)
		}
	}
}

func TestParseShard(t *testing.T) {
	for text, want := range map[string]Shard{"1/1": {0, 1}, "3/4": {2, 4}} {
		if got, err := ParseShard(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "0/2", "3/2", "a/b", "1/0", "-1/2", "1/2/3"} {
		if got, err := ParseShard(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
