package batch

import (
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
	// base is the first index; countIsMax says that the count variable holds the
	// last index instead, and countFallback another variable with the count.
	base          int
	countFallback []string
	minIndex      string
}

// systems are asked in this order; the first whose index is set wins.
var systems = []system{
	{name: "Buildkite", index: "BUILDKITE_PARALLEL_JOB", count: "BUILDKITE_PARALLEL_JOB_COUNT"},
	{name: "CircleCI", index: "CIRCLE_NODE_INDEX", count: "CIRCLE_NODE_TOTAL"},
	{name: "GitLab", index: "CI_NODE_INDEX", count: "CI_NODE_TOTAL", base: 1},
	{name: "Slurm", index: "SLURM_ARRAY_TASK_ID", count: "SLURM_ARRAY_TASK_COUNT", minIndex: "SLURM_ARRAY_TASK_MIN"},
	{name: "Kubernetes", index: "JOB_COMPLETION_INDEX", count: "NIGHTSHIFT_SHARD_COUNT", countFallback: []string{"JOB_COMPLETIONS"}},
	{name: "nightshift", index: "NIGHTSHIFT_SHARD_INDEX", count: "NIGHTSHIFT_SHARD_COUNT"},
}

// AutoShard reads the shard from the variables of the CI system. Without any
// the whole batch is one shard. Half a pair is an error: it would run tasks
// twice, or not at all.
func AutoShard(lookup func(string) (string, bool)) (Shard, string, error) {
	for _, s := range systems {
		text, ok := lookup(s.index)
		if !ok || text == "" {
			if count, ok := lookup(s.count); ok && count != "" && s.name != "Kubernetes" && s.name != "nightshift" {
				return Shard{}, "", fmt.Errorf("%s is set but %s is not: half a pair of shard variables", s.count, s.index)
			}
			continue
		}
		sh, err := s.read(text, lookup)
		if err != nil {
			return Shard{}, "", err
		}
		return sh, fmt.Sprintf("%s=%s", s.index, text), nil
	}
	if n, ok := lookup("NIGHTSHIFT_SHARD_COUNT"); ok && n != "" {
		return Shard{}, "", fmt.Errorf("NIGHTSHIFT_SHARD_COUNT is set but neither NIGHTSHIFT_SHARD_INDEX nor JOB_COMPLETION_INDEX is: half a pair of shard variables")
	}
	return Shard{0, 1}, "", nil
}

func (s system) read(text string, lookup func(string) (string, bool)) (Shard, error) {
	index, err := strconv.Atoi(text)
	if err != nil {
		return Shard{}, fmt.Errorf("%s=%q is not a number", s.index, text)
	}
	countVar := ""
	for _, name := range append([]string{s.count}, s.countFallback...) {
		if v, ok := lookup(name); ok && v != "" {
			countVar = name
			break
		}
	}
	if countVar == "" {
		return Shard{}, fmt.Errorf("%s is set but %s is not: half a pair of shard variables", s.index, s.count)
	}
	v, _ := lookup(countVar)
	count, err := strconv.Atoi(v)
	if err != nil || count < 1 {
		return Shard{}, fmt.Errorf("%s=%q is not a count", countVar, v)
	}
	base := s.base
	if s.minIndex != "" {
		if m, ok := lookup(s.minIndex); ok {
			if base, err = strconv.Atoi(m); err != nil {
				return Shard{}, fmt.Errorf("%s=%q is not a number", s.minIndex, m)
			}
		}
	}
	index -= base
	if index < 0 || index >= count {
		return Shard{}, fmt.Errorf("%s=%s is outside of %s=%d", s.index, text, countVar, count)
	}
	return Shard{index, count}, nil
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
