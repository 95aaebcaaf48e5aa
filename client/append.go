package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	runlogv1 "runlog/proto/runlog/v1"
)

// AppendEvents stores 1 to 1,000 events of one run, all or none (APP-3), and answers for each in
// order.
//
// Events without an eventId get one in place before the first try, so that every try, and a later
// call of the caller's with the same request, names the same events (APP-10).
func (c *Client) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	for i, event := range req.GetEvents() {
		if event == nil {
			return nil, &Error{Code: codes.InvalidArgument, Reason: reasonInvalidArgument,
				Message:    fmt.Sprintf("events[%d] is nil", i),
				Violations: []Violation{{Field: fmt.Sprintf("events[%d]", i), Reason: reasonInvalidArgument, Description: "is nil"}}}
		}
		if event.GetEventId() == "" {
			event.EventId = uuid.Must(uuid.NewV7()).String() // fails only without random numbers
		}
	}
	unknown := false // nobody can say whether an earlier try has stored the events
	once := func(ctx context.Context, req *runlogv1.AppendEventsRequest, opts ...grpc.CallOption) (*runlogv1.AppendEventsResponse, error) {
		var reached peer.Peer
		res, err := c.events.AppendEvents(ctx, req, append(opts, grpc.Peer(&reached))...)
		if err != nil && reached.Addr != nil && newError(ctx, err).unknown() {
			unknown = true
		}
		return res, err
	}
	res, before, err := try(ctx, c, once, req)
	var e *Error
	switch {
	case !errors.As(err, &e):
	case e.Code == codes.DeadlineExceeded && e.Reason == "":
		// Time ran out on this side: nobody knows what the server has done (APP-10).
		e.Reason = reasonOutcomeUnknown
		if before != nil {
			e.Message = fmt.Sprintf("%s; before that, a server said %s: %s", e.Message, before.Reason, before.Message)
		}
	case unknown && e.Retryable() && e.Reason != "" && e.Reason != reasonOutcomeUnknown:
		// The last try was not stored, which says nothing of those before.
		e.Message = fmt.Sprintf("an earlier try may have been stored; the last one failed with %s: %s", e.Reason, e.Message)
		e.Code, e.Reason = codes.Unavailable, reasonOutcomeUnknown
	}
	return res, err
}
