package writer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// sharedLog is a log that does not take the events of one run for the moment.
type sharedLog struct {
	*logFake
	run     string
	refusal *client.Error // nil: it does not answer, as a client.Appender that tries again
}

func (l *sharedLog) AppendRequest(ctx context.Context, req *runlogv1.AppendEventsRequest) (client.Result, error) {
	switch {
	case req.GetRunId() != l.held():
		time.Sleep(5 * time.Millisecond)
		if ctx.Err() != nil {
			return client.Result{}, ctx.Err()
		}
		return l.logFake.AppendRequest(ctx, req)
	case l.refusal.Code == codes.ResourceExhausted: // repeated until the context ends
		<-ctx.Done()
	}
	e := *l.refusal
	return client.Result{}, &ended{&e, ctx.Err()}
}

// TestRunThatIsNotTaken: a run whose events the log does not take for now holds up no other run of
// the outbox, and is sent, in order, once the log takes it.
func TestRunThatIsNotTaken(t *testing.T) {
	for _, refusal := range []*client.Error{
		{Code: codes.PermissionDenied, Reason: client.ReasonPermissionDenied, Message: "another tenant"},
		{Code: codes.ResourceExhausted, Reason: client.ReasonQuotaExceeded, Message: "it is full"},
	} {
		path := filepath.Join(t.TempDir(), "outbox")
		synctest.Test(t, func(t *testing.T) {
			log := &sharedLog{newLog(false), "r0", refusal}
			w, end := open(t, path, log, Options{Budget: 4 * parkTime})
			defer end()
			for key := range 3 {
				for run := range 40 {
					e := event(fmt.Sprint("r", run), contract.StepStarted, fmt.Sprint(run, "-", key))
					if res, err := w.Write(t.Context(), e); err != nil || !res.Parked {
						t.Fatalf("%v, %v", res, err)
					}
				}
			}
			log.set(true)
			time.Sleep(5 * time.Minute)
			if n := w.opts.Outbox.Stats().Pending; n != 3 {
				t.Errorf("%s: %d records are not sent after 5 minutes, want the 3 of the run", refusal.Reason, n)
			}
			log.set(false)
			if res, err := w.Write(t.Context(), event("r1", contract.StepStarted, "later")); err != nil || !res.Parked {
				t.Errorf("%v, %v", res, err)
			}
			log.set(true)
			began := time.Now()
			for w.opts.Outbox.Stats().Pending > 3 {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took > time.Second && refusal.Code == codes.PermissionDenied {
				t.Errorf("another run waits %v in the outbox", took)
			}
			log.mu.Lock()
			log.run = ""
			log.mu.Unlock()
			time.Sleep(time.Minute)
			if got := log.of("r0"); !slices.Equal(got, []string{"0-0", "0-1", "0-2"}) {
				t.Errorf("%s: stored %v", refusal.Reason, got)
			}
		})
	}
}

func (l *sharedLog) held() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.run
}
