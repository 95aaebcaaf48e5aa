package intake

import (
	"context"
	"errors"
	"fmt"

	"runlog/cmd/runlog/internal/session"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// outcome is the result of one batch. Each event is in results or in refused, unless err ended the
// batch early.
type outcome struct {
	run     string
	results []stored
	refused []refusal
	lastSeq uint64
	err     error
}

// stored is the result of an event that the server has.
type stored struct {
	origin
	eventType string
	*runlogv1.AppendResult
}

// sender stores batches of events of one run.
type sender struct {
	append func(context.Context, *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error)
}

// send stores a batch in order. A request is all or nothing (APP-3): the sender removes the events
// that the server refuses, and sends the others again. If the server names no event, the sender
// halves the request to find it.
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
			if rest := o.refuse(items, why); len(rest) > 0 {
				work = append([][]item{rest}, work...)
			}
		case len(items) == 1:
			o.refuse(items, map[int]string{0: session.Refusal(reasonOf(e), e.Message, e.Violations)})
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

func reasonOf(e *client.Error) string {
	if e.Reason != "" {
		return e.Reason
	}
	return e.Code.String()
}

func (o *outcome) add(items []item, res *runlogv1.AppendEventsResponse) error {
	if len(res.GetResults()) != len(items) {
		return fmt.Errorf("append to run %q: the server answered for %d of %d events", o.run, len(res.GetResults()), len(items))
	}
	for i, result := range res.GetResults() {
		o.results = append(o.results, stored{items[i].origin, items[i].event.GetEventType(), result})
	}
	o.lastSeq = res.GetLastSeq()
	return nil
}

// refuse records the events in why and returns the others.
func (o *outcome) refuse(items []item, why map[int]string) []item {
	var rest []item
	for i, it := range items {
		if text, bad := why[i]; bad {
			o.refused = append(o.refused, refusal{it.origin, o.run, text})
		} else {
			rest = append(rest, it)
		}
	}
	return rest
}
