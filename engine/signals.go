package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client"
	"runlog/client/transport/outage"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// SignalLog is what Signals needs of a client.Client. Its calls retry until their context ends.
type SignalLog interface {
	Runs
	replay.Log
	WatchRuns(context.Context, *runlogv1.WatchRunsRequest) iter.Seq2[*runlogv1.WatchRunsResponse, error]
	GetSnapshot(context.Context, *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error)
}

// Signals hands the signals that the log accepts over to an engine (SIG-6). It is a bridge without
// a memory of its own: the log says which signals no event answers yet (PRJ-19).
//
//	watch SignalAccepted ─► the run of each ─┐
//	Run begins ─► each run that goes on ─────┴─► its pending signals, in order ─► Deliver
//	                                   ▲   ▲                              │ error
//	watch RunStarted, of an early one ─┘   └──────── after a backoff ─────┘
//
// A signal is early if its run has no reference yet. It is handed over when RunStarted has told the
// reference, which is in that event or was set before it.
//
// The signals of a run are handed over in the order of their acceptance. One that was not taken is
// handed over again. It holds up the later ones of its run, except CANCEL and EMERGENCY_STOP, which
// end the run whatever becomes of it, and no other run. A signal may come twice, such as after a
// restart, or from two processes that have the same runs: it must then change nothing.
type Signals struct {
	Log SignalLog
	// Deliver hands one signal over, such as Adapter.Signal. It must end in some time: what comes
	// behind it waits.
	Deliver func(ctx context.Context, ref EngineRunRef, signal Signal) error
	// Tenant, Project and Environment are those of the runs; the fields from the first empty one on
	// are empty, and mean any. Runs of other engines are left alone.
	Tenant, Project, Environment string
	// Logger gets what cannot be handed over. nil: none.
	Logger *slog.Logger
}

// signalSlots bounds the runs that are looked at at the same time.
const signalSlots = 16

// Run hands signals over until ctx ends. All goroutines have ended when it returns.
func (s *Signals) Run(ctx context.Context) {
	logger := cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
	b := &bells{Signals: s, logger: logger, watchLog: outage.Log{Logger: logger}, slots: make(chan struct{}, signalSlots),
		rung: map[string]int{}, early: map[string]bool{}}
	defer b.working.Wait()
	for backoff := minBackoff; ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
		began := time.Now()
		if err := b.watch(ctx); ctx.Err() == nil {
			b.watchLog.Failed(ctx, "cannot watch signals; retrying", "wait", backoff, "err", err)
		}
		if time.Since(began) > maxBackoff {
			backoff = minBackoff
		}
		sleep(ctx, backoff)
	}
}

// bells are the runs that have signals, until these are handed over.
type bells struct {
	*Signals
	logger   *slog.Logger
	watchLog outage.Log
	slots    chan struct{}
	working  sync.WaitGroup

	mu    sync.Mutex
	rung  map[string]int  // how often each run was rung for since its goroutine began
	early map[string]bool // the runs with pending signals and without a reference
}

// watchedTypes are the events after which the pending signals of a run can be handed over, and
// those with which a run ends that was never started.
var watchedTypes = []string{contract.SignalAccepted, contract.RunStarted, contract.RunFailed, contract.RunCancelled}

// watch rings for the run of each signal that the log accepts, and again when the run of an early
// one has started or ended. Once the watch has begun, it rings for each run that goes on: signals
// may be from before.
func (b *bells) watch(ctx context.Context) error {
	watched := &runlogv1.WatchRunsRequest{TenantId: b.Tenant, ProjectId: b.Project, EnvironmentId: b.Environment,
		View: runlogv1.WatchView_EVENT, Types: watchedTypes}
	listed := false
	for m, err := range b.Log.WatchRuns(ctx, watched) {
		if err != nil {
			return err
		}
		for _, e := range m.GetEvents().GetEvents() {
			if e.GetEventType() == contract.SignalAccepted || b.waits(e.GetRunId()) {
				b.ring(ctx, e.GetRunId())
			}
		}
		if listed {
			continue
		}
		listed = true
		open := &runlogv1.ListRunsRequest{TenantId: b.Tenant, ProjectId: b.Project, EnvironmentId: b.Environment, Status: OpenStatuses()}
		for run, err := range b.Log.ListRuns(ctx, open) {
			if err != nil {
				return err
			}
			b.ring(ctx, run.GetRunId())
		}
		b.watchLog.Succeeded(ctx, "signals are watched again")
	}
	return errors.New("engine: the watch of signals has ended")
}

// waits reports whether the signals of a run are early, or may turn out to be: its goroutine may
// have looked before the run had its reference.
func (b *bells) waits(runID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.early[runID] || b.rung[runID] > 0
}

// ring has the pending signals of a run handed over. While all slots are taken, it waits.
func (b *bells) ring(ctx context.Context, runID string) {
	b.mu.Lock()
	b.rung[runID]++
	first := b.rung[runID] == 1
	b.mu.Unlock()
	if !first {
		return // Its goroutine looks again.
	}
	select {
	case <-ctx.Done():
	case b.slots <- struct{}{}:
		b.working.Go(func() { b.answer(ctx, runID) })
	}
}

// answer hands the pending signals of a run over until all were taken and none has come meanwhile.
// It begins with a slot, which it leaves while it waits.
func (b *bells) answer(ctx context.Context, runID string) {
	handLog := outage.Log{Logger: b.logger}
	for backoff := minBackoff; ; {
		b.mu.Lock()
		rung := b.rung[runID]
		b.mu.Unlock()
		early, err := b.handOver(ctx, runID)
		if err == nil {
			handLog.Succeeded(ctx, "signals are handed over again", "run", runID)
			b.mu.Lock()
			over := b.rung[runID] == rung
			if over {
				delete(b.rung, runID)
				delete(b.early, runID)
			}
			if over && early {
				b.early[runID] = true
			}
			b.mu.Unlock()
			if over {
				<-b.slots
				return
			}
			backoff = minBackoff
			continue
		}
		<-b.slots
		if ctx.Err() == nil {
			handLog.Failed(ctx, "cannot hand signals over; retrying", "run", runID, "wait", backoff, "err", err)
		}
		sleep(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
		select {
		case <-ctx.Done():
			return
		case b.slots <- struct{}{}:
		}
	}
}

// handOver hands each pending signal of a run over, in order. It reports whether they are early:
// the engine may have read the log before them, and its reference is not in the log yet. ErrNoRun
// means that the run is another engine's.
func (b *bells) handOver(ctx context.Context, runID string) (early bool, err error) {
	res, err := b.Log.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: runID})
	if hasReason(err, client.ReasonRunNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	snapshot := res.GetSnapshot()
	ref := EngineRunRef(snapshot.GetEngineRunRef())
	if ref == "" {
		return len(snapshot.GetPendingSignals()) > 0, nil
	}
	var failed error // of the first signal that was not taken
	for _, pending := range snapshot.GetPendingSignals() {
		if failed != nil && !endsRun(pending.GetSignalType()) {
			continue
		}
		signal, err := b.read(ctx, runID, pending)
		if err == nil {
			err = b.Deliver(ctx, ref, signal)
		}
		if errors.Is(err, ErrNoRun) {
			return false, nil
		}
		if _, unknown := errors.AsType[*UnsupportedError](err); unknown {
			b.logger.WarnContext(ctx, "the engine does not obey a signal", "run", runID, "signal", signal.ID, "type", signal.Type)
		} else if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("engine: cannot hand the signal %q of run %q over: %w", pending.GetSignalId(), runID, err))
		}
	}
	return false, failed
}

// endsRun reports whether a signal ends its run, whatever its earlier signals ask for.
func endsRun(signalType string) bool {
	return signalType == contract.SignalCancel || signalType == contract.SignalEmergencyStop
}

// read reads the rest of a pending signal: what its sender has said.
func (b *bells) read(ctx context.Context, runID string, pending *runlogv1.PendingSignal) (Signal, error) {
	signal := Signal{ID: pending.GetSignalId(), Type: pending.GetSignalType(), StepID: pending.GetStepId(),
		LogicalAttemptID: pending.GetNextLogicalAttemptId()}
	req := &runlogv1.ReadEventsRequest{RunId: runID, AfterSeq: pending.GetRunSeq() - 1, Limit: 1, PayloadForm: runlogv1.PayloadForm_JSON}
	for e, err := range b.Log.ReadEvents(ctx, req) {
		if err != nil {
			return Signal{}, err
		}
		var said structpb.Struct
		if protojson.Unmarshal(e.GetPayloadJson(), &said) != nil {
			break // A decider has written it.
		}
		signal.Reason, signal.Parameters = said.GetFields()["reason"].GetStringValue(), said.GetFields()["parameters"].GetStructValue()
	}
	return signal, nil
}
