package client

import (
	"context"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// QueryEvents yields the pages of an audit window in commit order (READ-3, READ-4), from
// req.PageToken on. The window's completeThrough, closed, count and digest on a page hold from the
// first page to its end. An error ends the iteration.
func (c *Client) QueryEvents(ctx context.Context, req *runlogv1.QueryEventsRequest) iter.Seq2[*runlogv1.QueryEventsResponse, error] {
	query := func(ctx context.Context, req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error) {
		return call(ctx, c, c.audit.QueryEvents, req)
	}
	whole := func(page *runlogv1.QueryEventsResponse) []*runlogv1.QueryEventsResponse {
		return []*runlogv1.QueryEventsResponse{page}
	}
	return Pages(ctx, req, query, whole)
}

// ExportEvents yields the messages of one export of an audit window, from req.PageToken on, without
// repetitions or gaps. After a lost connection or node it resumes after the last message, at any
// node that answers. Messages without new events do not extend its retries. The last message has
// the summary. An error ends the iteration.
func (c *Client) ExportEvents(ctx context.Context, req *runlogv1.ExportEventsRequest) iter.Seq2[*runlogv1.ExportEventsResponse, error] {
	return func(yield func(*runlogv1.ExportEventsResponse, error) bool) {
		req, tries, left, whole, placed := proto.CloneOf(req), retrier{client: c, patience: c.opts.Timeout, token: c.opts.token()}, false, false, true
		take := func(res *runlogv1.ExportEventsResponse) bool {
			c.reached.Store(true)
			switch token := res.GetResumeToken(); {
			case token == "":
				placed = placed && len(res.GetEvents()) == 0
			case token != req.GetPageToken():
				req.PageToken, placed = token, true
				tries.answered()
			}
			whole = res.GetSummary() != nil
			left = !yield(res, nil)
			return !left && !whole
		}
		for {
			failure := receive(ctx, c.opts.Timeout, bind(c.audit.ExportEvents, req), take)
			switch {
			case left || whole:
				return
			case failure == nil:
				failure = &Error{Code: codes.Unavailable, Message: "the server ended the export before its summary"}
			}
			if !placed {
				yield(nil, failure) // going on would repeat events
				return
			}
			if err := tries.again(ctx, failure); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
