package audit

import (
	"context"
	"fmt"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
)

// exported is a message that waits to be sent, and its part of the budget.
type exported struct {
	*runlogv1.ExportEventsResponse
	grant budget.Grant
}

// draw makes a message of so many bytes count until it is sent. Error: OVERLOADED.
func (e *exporting) draw(m *runlogv1.ExportEventsResponse, bytes int) (exported, error) {
	if bytes <= budget.Uncounted {
		return exported{ExportEventsResponse: m}, nil
	}
	grant, err := e.s.opts.Memory.Acquire(budget.Shared, int64(bytes))
	return exported{m, grant}, err
}

func (e *exporting) send(send func(*runlogv1.ExportEventsResponse) error) {
	ended := false
	for m := range e.made {
		if !ended {
			if e.sendErr = send(m.ExportEventsResponse); e.sendErr != nil {
				ended = true
				close(e.sent)
			}
		}
		m.grant.Release()
	}
	if !ended {
		close(e.sent)
	}
}

// put queues a message. It waits while the queue is full, at most SlowConsumer.
func (e *exporting) put(ctx context.Context, m exported) error {
	patience := time.NewTimer(e.s.opts.SlowConsumer)
	defer patience.Stop()
	select {
	case e.made <- m:
		return nil
	case <-e.sent:
		m.grant.Release()
		return e.sendErr
	case <-ctx.Done():
		m.grant.Release()
		return context.Cause(ctx)
	case <-patience.C:
		m.grant.Release()
		return e.slow()
	}
}

// end waits until all messages are sent. No put follows.
func (e *exporting) end(ctx context.Context) error {
	patience := time.NewTimer(e.s.opts.SlowConsumer)
	defer patience.Stop()
	select {
	case <-e.sent:
		return e.sendErr
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-patience.C:
		return e.slow()
	}
}

func (e *exporting) slow() error {
	return &contract.Error{Reason: contract.ReasonSlowConsumer,
		Message: fmt.Sprintf("a message of the export waited for its reader for %v: resume from the last resumeToken", e.s.opts.SlowConsumer)}
}

// hand queues a message unless the queue stays full until the view has been held for long.
func (e *exporting) hand(ctx context.Context, m exported, held <-chan time.Time) bool {
	select {
	case e.made <- m:
		return true
	default:
	}
	select {
	case e.made <- m:
		return true
	case <-held:
	case <-e.sent: // put says why
	case <-ctx.Done():
	}
	return false
}
