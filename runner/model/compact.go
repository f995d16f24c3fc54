package model

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/tidwall/gjson"
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
	if !gjson.ValidBytes(data) {
		return nil, fail(ClassBadResponse, prefixStream+"the compacted history is not JSON").stream()
	}
	got := gjson.ParseBytes(data)
	out := &Response{ID: text(got.Get("id")), ServiceID: res.Header.Get("X-Request-Id"), Status: "completed", Usage: usageOf(got.Get("usage"))}
	for _, it := range got.Get("output").Array() {
		out.Items = append(out.Items, Item{Raw: json.RawMessage(it.Raw)})
	}
	out.FirstEvent = c.o.Now().Sub(begin)
	out.Duration = out.FirstEvent
	return out, nil
}
