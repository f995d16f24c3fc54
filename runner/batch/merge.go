package batch

import (
	"encoding/json"
	"sort"
)

// Merge joins the results of shards: one for each task, ordered by id. It is
// pure; the order of its arguments does not matter, and merging a merge changes
// nothing. Of two results of one task the success wins, then the later attempt,
// then the smaller encoding, so that every order gives the same answer.
func Merge(lists ...[]Result) []Result {
	best := map[string]Result{}
	for _, list := range lists {
		for _, r := range list {
			if old, ok := best[r.ID]; !ok || better(r, old) {
				best[r.ID] = r
			}
		}
	}
	out := make([]Result, 0, len(best))
	for _, r := range best {
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

func better(a, b Result) bool {
	if a.OK() != b.OK() {
		return a.OK()
	}
	if a.Attempt != b.Attempt {
		return a.Attempt > b.Attempt
	}
	return encoding(a) < encoding(b)
}

func encoding(r Result) string {
	b, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return string(b)
}
