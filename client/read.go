package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// ListEvents yields a run's events in runSeq order, page by page (READ-1). req.PageSize is the size
// of one page; 0 means the largest. An error ends the iteration.
func (c *Client) ListEvents(ctx context.Context, req *runlogv1.ListEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		req := proto.CloneOf(req)
		for {
			res, err := call(ctx, c, c.events.ListEvents, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, record := range res.GetEvents() {
				if !yield(record, nil) {
					return
				}
			}
			if res.GetNextAfterSeq() == 0 {
				return
			}
			req.AfterSeq = res.GetNextAfterSeq()
		}
	}
}

// ReadEvents yields a run's events in runSeq order from one stream (READ-1). A broken stream
// resumes after the last event. An error ends the iteration.
func (c *Client) ReadEvents(ctx context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		req := proto.CloneOf(req)
		limited, more := req.GetLimit() > 0, true
		tries := retrier{client: c, patience: c.opts.Timeout, token: c.opts.token()}
		take := func(res *runlogv1.ReadEventsResponse) bool {
			tries.answered()
			for _, record := range res.GetEvents() {
				if more = yield(record, nil); !more {
					return false
				}
				req.AfterSeq = record.GetRunSeq()
				if limited {
					req.Limit--
					more = req.Limit > 0
				}
			}
			return more
		}
		for {
			failure := receive(ctx, c.opts.Timeout, bind(c.events.ReadEvents, req), take)
			if failure == nil || !more {
				return
			}
			if err := tries.again(ctx, failure); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// GetRun returns a run's metadata and head.
func (c *Client) GetRun(ctx context.Context, req *runlogv1.GetRunRequest) (*runlogv1.Run, error) {
	res, err := call(ctx, c, c.runs.GetRun, req)
	return res.GetRun(), err
}

// ListRuns yields runs newest first, page by page, from req.PageToken on. req.PageSize is the size
// of one page. An error ends the iteration.
func (c *Client) ListRuns(ctx context.Context, req *runlogv1.ListRunsRequest) iter.Seq2[*runlogv1.Run, error] {
	return Pages(ctx, req, c.ListRunsPage, (*runlogv1.ListRunsResponse).GetRuns)
}

// ListRunsPage returns a page of the runs that match a filter.
func (c *Client) ListRunsPage(ctx context.Context, req *runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
	return call(ctx, c, c.runs.ListRuns, req)
}

// CountRuns returns the number of runs that match the filter of a request, at most 10,000. orMore
// reports whether more match, or may match.
func (c *Client) CountRuns(ctx context.Context, req *runlogv1.ListRunsRequest) (n uint32, orMore bool, err error) {
	req = proto.CloneOf(req)
	req.Count, req.PageSize, req.PageToken = true, 1, ""
	res, failure := call(ctx, c, c.runs.ListRuns, req)
	if failure != nil {
		return 0, false, failure
	}
	return res.GetCount(), res.GetCountOrMore(), nil
}
