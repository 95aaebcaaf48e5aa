package bench

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// openAppend prepares append-unary and append-batch: each caller is a producer that appends the history of
// one run after the other, w.batch events a call.
func (o *Options) openAppend(ctx context.Context, w *workload) ([]caller, int, func() error, error) {
	c, release, err := o.Node(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	s := newSession(o)
	callers := make([]caller, w.callers)
	for i := range callers {
		p := newProducer(o, s, w.batch, i)
		callers[i] = func(ctx context.Context) (int, error) { return appendOnce(ctx, c, p) }
	}
	size := proto.Size(newProducer(o, s, w.batch, w.callers).next())
	return callers, size, release, nil
}

// appendOnce sends a producer's next request and checks the answer: every event stored by this call, in
// order, behind those that the producer has sent before.
func appendOnce(ctx context.Context, c *client.Client, p *producer) (int, error) {
	req := p.next()
	res, err := c.AppendEvents(ctx, req)
	if err != nil {
		// Whether the node has the events or not is open, so the run cannot go on in order.
		p.beginRun()
		return 0, err
	}
	if err := checkAnswer(req, res, p.stored); err != nil {
		p.beginRun()
		return 0, err
	}
	p.stored += uint64(len(req.Events))
	return len(req.Events), nil
}

func checkAnswer(req *runlogv1.AppendEventsRequest, res *runlogv1.AppendEventsResponse, before uint64) error {
	if len(res.GetResults()) != len(req.Events) {
		return &answerError{"WRONG_COUNT", fmt.Sprintf("%d results for %d events", len(res.GetResults()), len(req.Events))}
	}
	for i, r := range res.GetResults() {
		switch {
		case !r.GetPersisted() || r.GetIdempotent():
			return &answerError{"NOT_PERSISTED", fmt.Sprintf("event %d of run %q was taken for a duplicate", i, req.RunId)}
		case r.GetRunSeq() != before+uint64(i)+1:
			return &answerError{"WRONG_SEQ", fmt.Sprintf("event %d of run %q got runSeq %d, want %d", i, req.RunId, r.GetRunSeq(), before+uint64(i)+1)}
		case r.GetEventId() != req.Events[i].GetEventId():
			return &answerError{"WRONG_EVENT", fmt.Sprintf("event %d of run %q came back as another", i, req.RunId)}
		}
	}
	return nil
}
