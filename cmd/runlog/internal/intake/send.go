package intake

import (
	"context"
	"errors"
	"fmt"

	"runlog/client/command/session"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// outcome is the result of one batch. Each event is in results, in refused or in skipped, unless
// err ended the batch early.
type outcome struct {
	run     string
	results []stored
	refused []refusal
	skipped int // events behind the refused one
	lastSeq uint64
	err     error
}

// stored is the result of an event that the server has.
type stored struct {
	origin
	eventType string
	kept      bool // see item
	*runlogv1.AppendResult
}

// sender stores batches of events of one run.
type sender struct {
	append func(context.Context, *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error)
	// keepGoing sends what is behind a refused event.
	keepGoing bool
}

// send stores a batch in order. A request is all or nothing (APP-3): the sender removes the first
// event that the server refuses and all behind it, or with keepGoing the refused ones, and sends
// the others again. If the server names no event, the sender halves the request to find it.
func (s sender) send(ctx context.Context, batch []item) outcome {
	o := outcome{run: batch[0].event.GetRunId()}
	work := [][]item{batch}
	for len(work) > 0 {
		items := work[0]
		work = work[1:]
		res, err := s.append(ctx, request(o.run, items))
		if err == nil {
			if o.err = o.add(items, res); o.err != nil {
				return o
			}
			continue
		}
		e, ok := errors.AsType[*client.Error](err)
		if !ok || !refusesInput(e) {
			o.err = err
			return o
		}
		why := refusedEvents(e, len(items))
		switch {
		case len(why) > 0:
			rest := o.refuse(items, why, s.keepGoing)
			if !s.keepGoing {
				work = o.skip(work)
			}
			if len(rest) > 0 {
				work = append([][]item{rest}, work...)
			}
		case len(items) == 1:
			o.refuse(items, map[int]string{0: session.Refusal(e.Name(), e.Message, e.Violations)}, s.keepGoing)
			if !s.keepGoing {
				work = o.skip(work)
			}
		default:
			half := len(items) / 2
			work = append([][]item{items[:half], items[half:]}, work...)
		}
	}
	return o
}

func request(run string, items []item) *runlogv1.AppendEventsRequest {
	req := &runlogv1.AppendEventsRequest{RunId: run, Events: make([]*runlogv1.EventWrite, len(items))}
	for i, it := range items {
		req.Events[i] = it.event
	}
	return req
}

func (o *outcome) add(items []item, res *runlogv1.AppendEventsResponse) error {
	if len(res.GetResults()) != len(items) {
		return fmt.Errorf("append to run %q: the server answered for %d of %d events", o.run, len(res.GetResults()), len(items))
	}
	for i, result := range res.GetResults() {
		o.results = append(o.results, stored{items[i].origin, items[i].event.GetEventType(), items[i].kept, result})
	}
	o.lastSeq = res.GetLastSeq()
	return nil
}

// refuse records the events in why and returns the others. Without keepGoing, it records the first
// one only, and skips those behind it.
func (o *outcome) refuse(items []item, why map[int]string, keepGoing bool) []item {
	var rest []item
	for i, it := range items {
		text, bad := why[i]
		if !bad {
			rest = append(rest, it)
			continue
		}
		if !keepGoing {
			// One that was refused before lies behind this one.
			o.skipped += len(o.refused) + len(items) - i - 1
			o.refused = o.refused[:0]
		}
		o.refused = append(o.refused, refusal{it.origin, o.run, text})
		if !keepGoing {
			break
		}
	}
	return rest
}

// skip counts work that is not done any more.
func (o *outcome) skip(work [][]item) [][]item {
	for _, items := range work {
		o.skipped += len(items)
	}
	return nil
}

// validate answers a request as a server with the default rules would, and stores nothing.
func validate(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	events, err := contract.ValidateAll(req.Events, contract.Options{RunID: req.RunId})
	if e, refused := errors.AsType[*contract.Error](err); refused {
		out := &client.Error{Code: codes.InvalidArgument, Reason: e.Reason, Message: e.Message, Metadata: e.Metadata}
		for _, v := range e.Violations {
			out.Violations = append(out.Violations, client.Violation{Field: v.Field, Reason: v.Reason, Description: v.Description})
		}
		return nil, out
	}
	resp := &runlogv1.AppendEventsResponse{}
	for _, e := range events {
		result := &runlogv1.AppendResult{Persisted: true}
		if likely, ok := contract.LikelyType(e.Type); ok {
			result.DidYouMean = &likely
		}
		for _, w := range e.Warnings {
			result.Warnings = append(result.Warnings, &runlogv1.Warning{Field: w.Field, Description: w.Description})
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, err
}
