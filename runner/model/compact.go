package model

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3/responses"
)

// readCompact reads the answer of the compaction endpoint.
func (c *Client) readCompact(ctx context.Context, res *http.Response, begin time.Time) (*Response, *failure) {
	defer func() { _ = res.Body.Close() }() // nothing of it is wanted any more
	data, err := io.ReadAll(io.LimitReader(res.Body, maxItemBytes+1))
	switch {
	case err != nil:
		return nil, c.timedOut(ctx, cut(err))
	case len(data) > maxItemBytes:
		return nil, oversized("the compacted history", maxItemBytes)
	}
	var got struct {
		ID     string                  `json:"id"`
		Output []json.RawMessage       `json:"output"`
		Usage  responses.ResponseUsage `json:"usage"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		return nil, fail(ClassBadResponse, prefixStream+"the compacted history is not JSON").because(err).stream()
	}
	out := &Response{ID: got.ID, ServiceID: res.Header.Get("X-Request-Id"), Model: "", Status: "completed", Usage: usageOf(got.Usage)}
	for _, raw := range got.Output {
		out.Items = append(out.Items, Item{Raw: raw})
	}
	out.FirstEvent = c.o.Now().Sub(begin)
	out.Duration = out.FirstEvent
	return out, nil
}
