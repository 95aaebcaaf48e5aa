package client

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
)

// AppendEvents stores 1 to 1,000 events of one run, all or none (APP-3), and returns a result for
// each, in order.
//
// An event without an eventId gets one before the first try: every try, and a later call with the
// same request, then names the same events (APP-10).
func (c *Client) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if err := nameEvents(req.GetEvents()); err != nil {
		return nil, err
	}
	return write(ctx, c, c.events.AppendEvents, req)
}

// BatchAppend appends to several runs, atomically for each run (APP-3). The answer has an outcome
// for each request, in order; a status in it is that request's own failure (ErrorOf), or after a
// repetition OUTCOME_UNKNOWN. Only a call that failed as a whole is repeated.
func (c *Client) BatchAppend(ctx context.Context, req *runlogv1.BatchAppendRequest) (*runlogv1.BatchAppendResponse, error) {
	for _, r := range req.GetRequests() {
		if err := nameEvents(r.GetEvents()); err != nil {
			return nil, err
		}
	}
	res, unknown, err := tellingWrite(ctx, c, c.events.BatchAppend, req)
	for _, o := range res.GetOutcomes() {
		if st := status.FromProto(o.GetStatus()); unknown && st.Code() != codes.OK {
			o.Status = settled(st).Proto()
		}
	}
	return res, err
}

// settled turns a failure in the answer to a repeated batch into OUTCOME_UNKNOWN, unless it also
// tells of the tries before.
func settled(st *status.Status) *status.Status {
	e := ErrorOf(st)
	reason := e.Reason
	if e.settle(true, nil); e.Reason == reason {
		return st
	}
	st, _ = status.New(e.Code, e.Message).WithDetails( // fails only for an OK
		&errdetails.ErrorInfo{Domain: errorDomain, Reason: string(e.Reason), Metadata: e.Metadata},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	return st
}

// NameEvents gives an eventId to each event that has none, as the methods that append do.
func NameEvents(events []*runlogv1.EventWrite) error {
	if refusal := nameEvents(events); refusal != nil {
		return refusal
	}
	return nil
}

func nameEvents(events []*runlogv1.EventWrite) *Error {
	for i, event := range events {
		if event == nil {
			return invalid(fmt.Sprintf("events[%d]", i), "is nil")
		}
		if event.GetEventId() == "" {
			event.EventId = uuid.Must(uuid.NewV7()).String() // fails only without random numbers
		}
	}
	return nil
}

// invalid refuses a request on this side, as a server does.
func invalid(field, description string) *Error {
	return &Error{Code: codes.InvalidArgument, Reason: ReasonInvalidArgumentField, Message: field + " " + description,
		Violations: []Violation{{Field: field, Reason: ReasonInvalidArgumentField, Description: description}}}
}
