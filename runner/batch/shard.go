package batch

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Shard is part Index (from 0) of Count.
type Shard struct{ Index, Count int }

// ParseShard reads "I/N", I from 1, as people count.
func ParseShard(s string) (Shard, error) {
	i, n, ok := strings.Cut(s, "/")
	index, err1 := strconv.Atoi(i)
	count, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil || count < 1 || index < 1 || index > count {
		return Shard{}, fmt.Errorf("%q is not a shard: write I/N with 1 ≤ I ≤ N, or auto", s)
	}
	return Shard{index - 1, count}, nil
}

// system is one CI system's pair of variables.
type system struct {
	name, index, count string
	base               int    // the first index
	minIndex, step     string // variables with the first index and the distance of two
	countFallback      string // another variable with the count
}

// systems are asked in this order; the first whose index is set wins. Our own
// pair comes first: whoever sets it means it. GitHub has no variables for a
// matrix; its examples set our pair from strategy.job-index and job-total.
var systems = []system{
	{name: "nightshift", index: "NIGHTSHIFT_SHARD_INDEX", count: shardCount},
	{name: "Buildkite", index: "BUILDKITE_PARALLEL_JOB", count: "BUILDKITE_PARALLEL_JOB_COUNT"},
	{name: "CircleCI", index: "CIRCLE_NODE_INDEX", count: "CIRCLE_NODE_TOTAL"},
	{name: "GitLab", index: "CI_NODE_INDEX", count: "CI_NODE_TOTAL", base: 1},
	{name: "Azure Pipelines", index: "SYSTEM_JOBPOSITIONINPHASE", count: "SYSTEM_TOTALJOBSINPHASE", base: 1},
	{name: "Bitbucket", index: "BITBUCKET_PARALLEL_STEP", count: "BITBUCKET_PARALLEL_STEP_COUNT"},
	{name: "Semaphore", index: "SEMAPHORE_JOB_INDEX", count: "SEMAPHORE_JOB_COUNT", base: 1},
	{name: "AWS Batch", index: "AWS_BATCH_JOB_ARRAY_INDEX", count: "AWS_BATCH_JOB_ARRAY_SIZE"},
	{name: "Slurm", index: "SLURM_ARRAY_TASK_ID", count: "SLURM_ARRAY_TASK_COUNT", minIndex: "SLURM_ARRAY_TASK_MIN", step: "SLURM_ARRAY_TASK_STEP"},
	{name: "Kubernetes", index: "JOB_COMPLETION_INDEX", count: shardCount, countFallback: "JOB_COMPLETIONS"},
}

// shardCount goes with our own index variable and with the one of Kubernetes,
// which sets no count itself.
const shardCount = "NIGHTSHIFT_SHARD_COUNT"

// AutoShard reads the shard from the variables of the CI system. Without any
// the whole batch is one shard. Half a pair is an error: it would run tasks
// twice, or not at all.
func AutoShard(lookup func(string) (string, bool)) (Shard, string, error) {
	get := func(name string) string {
		v, _ := lookup(name)
		return v
	}
	half := ""
	for _, s := range systems {
		text := get(s.index)
		if text != "" {
			sh, err := s.read(text, get)
			if err != nil {
				return Shard{}, "", err
			}
			return sh, fmt.Sprintf("%s=%s", s.index, text), nil
		}
		// GitLab sets a total of 1 in every job, also where nothing is parallel.
		if n := get(s.count); n != "" && n != "1" && half == "" {
			half = fmt.Sprintf("%s=%s is set but %s is not: half a pair of shard variables", s.count, n, s.index)
		}
	}
	if half != "" {
		return Shard{}, "", errors.New(half)
	}
	return Shard{0, 1}, "", nil
}

func (s system) read(text string, get func(string) string) (Shard, error) {
	index, err := strconv.Atoi(text)
	if err != nil {
		return Shard{}, fmt.Errorf("%s=%q is not a number", s.index, text)
	}
	countVar := s.count
	if get(countVar) == "" && s.countFallback != "" {
		countVar = s.countFallback
	}
	if get(countVar) == "" {
		return Shard{}, fmt.Errorf("%s is set but %s is not: half a pair of shard variables", s.index, s.count)
	}
	count, err := strconv.Atoi(get(countVar))
	if err != nil || count < 1 {
		return Shard{}, fmt.Errorf("%s=%q is not a count", countVar, get(countVar))
	}
	number := func(name string, otherwise int) int {
		v := get(name)
		if name == "" || v == "" {
			return otherwise
		}
		n, nerr := strconv.Atoi(v)
		if nerr != nil || n < 0 {
			err = fmt.Errorf("%s=%q is not a number", name, v)
		}
		return n
	}
	base, step := number(s.minIndex, s.base), max(1, number(s.step, 1))
	if err != nil {
		return Shard{}, err
	}
	at := index - base
	if at < 0 || at%step != 0 || at/step >= count {
		return Shard{}, fmt.Errorf("%s=%s is outside of %s=%d (indexes must follow each other from %d in steps of %d)", s.index, text, countVar, count, base, step)
	}
	return Shard{at / step, count}, nil
}

// Has tells whether a task belongs to the shard: by rendezvous hashing of its
// id, so that adding a task moves no other, and changing the count moves only
// the share it must.
func (s Shard) Has(id string) bool {
	if s.Count <= 1 {
		return true
	}
	best, bestScore := 0, uint64(0)
	for i := range s.Count {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d\x00%s", i, id)
		if score := mix(h.Sum64()); i == 0 || score > bestScore {
			best, bestScore = i, score
		}
	}
	return best == s.Index
}

// mix spreads the bits of h; FNV alone leaves close inputs close.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
