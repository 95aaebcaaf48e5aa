package replay

import (
	"context"
	"iter"

	runlogv1 "runlog/proto/runlog/v1"
)

// Log is where the events of runs are read from, such as a client.Client.
type Log interface {
	ReadEvents(context.Context, *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error]
}

// Read applies the events that the log has behind the last one of the state. Those that were read
// before a failure are applied too.
func (s *State) Read(ctx context.Context, log Log, runID string) error {
	for e, err := range log.ReadEvents(ctx, Request(runID, s.LastSeq)) {
		if err != nil {
			return err
		}
		s.Apply(e)
	}
	return nil
}

// Request asks for the events of a run behind a runSeq, in the form that Apply takes.
func Request(runID string, after uint64) *runlogv1.ReadEventsRequest {
	return &runlogv1.ReadEventsRequest{
		RunId: runID, AfterSeq: after, PayloadForm: runlogv1.PayloadForm_JSON, Consistency: runlogv1.Consistency_LINEARIZABLE,
	}
}
