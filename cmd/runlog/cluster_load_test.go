//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// callPatience bounds one try of an append: a paused node does not answer.
	callPatience = 2 * time.Second
	// sharedRuns are written by all writers, each event on the condition that no other came
	// between.
	sharedRuns = 2
)

// clusterLoad are writers and readers of a cluster.
type clusterLoad struct {
	t       *testing.T
	c       *procCluster
	ledger  *clusterLedger
	writers []*clusterWriter
	left    []*clusterWriter // that have but what streams left
	streams int

	stop func()
	done sync.WaitGroup
}

// clusterWriter appends to its own runs, and to shared ones, one request after the other.
type clusterWriter struct {
	load    *clusterLoad
	name    string
	next    int
	pending *sentAppend // was not settled when the load ended
}

func newClusterLoad(t *testing.T, c *procCluster, writers int) *clusterLoad {
	l := &clusterLoad{t: t, c: c, ledger: newClusterLedger(t), stop: func() {}}
	for i := range writers {
		l.writers = append(l.writers, &clusterWriter{load: l, name: fmt.Sprintf("w%d", i)})
	}
	return l
}

// begin starts writers and readers, once those before have ended. They go on until end.
func (l *clusterLoad) begin() {
	l.end()
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	l.t.Cleanup(l.end)
	for _, w := range l.writers {
		l.done.Go(func() { w.write(ctx) })
	}
	l.done.Go(func() { l.stream(ctx) })
	for range 2 {
		l.done.Go(func() { l.read(ctx) })
	}
}

// end stops all of them. What is under way then is settled later.
func (l *clusterLoad) end() {
	l.stop()
	l.done.Wait()
}

// settle sends what had no answer until it has one.
func (l *clusterLoad) settle() {
	l.t.Helper()
	l.end()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	for _, w := range slices.Concat(l.writers, l.left) {
		if a := w.pending; a != nil {
			w.pending = nil
			if w.try(ctx, a); w.pending != nil {
				l.t.Fatalf("an append gets no answer: %v", a.req)
			}
		}
	}
}

// awaitAck waits until an append is acknowledged that was sent after a moment, and returns how long
// after that it was.
func (l *clusterLoad) awaitAck(after time.Time) time.Duration {
	l.t.Helper()
	for deadline := time.Now().Add(clusterPatience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if took, ok := l.ledger.recovered(after); ok {
			return took
		}
	}
	l.t.Fatal("nothing is acknowledged any more")
	return 0
}

func (w *clusterWriter) write(ctx context.Context) {
	for ctx.Err() == nil {
		a := w.pending
		w.pending = nil
		if a == nil {
			req, err := w.request(ctx)
			if err != nil {
				continue
			}
			a = w.load.ledger.open(req)
		}
		w.try(ctx, a)
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
	}
}

// clusterEvent is an event that its step names.
func clusterEvent(step string) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventType: "StepCompleted", TenantId: "t", ProjectId: "p", EnvironmentId: "e", PlanId: "plan", PlanVersion: "1", StepId: step,
		LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: fmt.Appendf(nil, `{"pad":"%x"}`, make([]byte, rand.IntN(400)))},
	}
}

// request makes the next one. One to a shared run needs to know where that is.
func (w *clusterWriter) request(ctx context.Context) (*runlogv1.AppendEventsRequest, error) {
	w.next++
	if rand.IntN(4) == 0 {
		run := fmt.Sprintf("shared-%d", rand.IntN(sharedRuns))
		last, err := w.load.lastSeq(ctx, run, w.load.c.any())
		return &runlogv1.AppendEventsRequest{RunId: run, ExpectedLastSeq: &last,
			Events: []*runlogv1.EventWrite{clusterEvent(fmt.Sprintf("%s/%d", w.name, w.next))}}, err
	}
	req := &runlogv1.AppendEventsRequest{RunId: fmt.Sprintf("%s-%d", w.name, w.next/50)}
	size := 1
	if rand.IntN(5) == 0 {
		size += rand.IntN(20)
	}
	for i := range size {
		req.Events = append(req.Events, clusterEvent(fmt.Sprintf("%d/%d", w.next, i)))
	}
	if known := w.load.ledger.someAcked(req.RunId); known != nil && rand.IntN(4) == 0 {
		req.Events = append(req.Events, known) // is not stored again (IDM-6)
	}
	return req, nil
}

// someAcked returns an event of a run that was acknowledged.
func (l *clusterLedger) someAcked(run string) *runlogv1.EventWrite {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, known := range l.runLocked(run).acked {
		return known.event
	}
	return nil
}

// someRun returns a run that something was acknowledged of.
func (l *clusterLedger) someRun() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := slices.Collect(maps.Keys(l.runs))
	if len(runs) == 0 {
		return "shared-0"
	}
	return runs[rand.IntN(len(runs))]
}

// freshRun returns a run that something was acknowledged of after a moment; empty: there is none.
func (l *clusterLedger) freshRun(after time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for run, r := range l.runs {
		if r.at.After(after) {
			return run
		}
	}
	return ""
}

// try sends a request to one node after the other, as it is, until its outcome is known (APP-10).
func (w *clusterWriter) try(ctx context.Context, a *sentAppend) {
	for ; ctx.Err() == nil; time.Sleep(time.Duration(2+rand.IntN(10)) * time.Millisecond) {
		a.tries++
		a.sentAt = time.Now()
		call, cancel := context.WithTimeout(ctx, callPatience)
		resp, err := runlogv1.NewEventServiceClient(w.load.c.any().conn).AppendEvents(call, a.req)
		cancel()
		if err == nil {
			w.load.ledger.acknowledge(a, resp.Results, resp.LastSeq)
			return
		}
		if w.load.refused(a, err) {
			return
		}
	}
	w.pending = a
}

// refused judges an error, and tells whether the request is at its end.
func (l *clusterLoad) refused(a *sentAppend, err error) (done bool) {
	reason := grpcReason(err)
	l.ledger.countRefusal(cmpOr(string(reason), status.Code(err).String()))
	switch reason {
	case contract.ReasonNoLeader, contract.ReasonNotLeader, contract.ReasonShuttingDown, contract.ReasonOverloaded:
		// Nothing was stored. Some of those are left at that, so that the final check can tell.
		if !a.maybe && rand.IntN(6) == 0 {
			l.ledger.giveUp(a, string(reason))
			return true
		}
		return false
	case contract.ReasonSequenceConflict:
		if a.req.ExpectedLastSeq == nil {
			l.t.Errorf("a request without a condition was refused for it: %v", err)
		}
		// Not stored, and never will be: the run is further than the condition of any try.
		l.ledger.giveUp(a, string(reason))
		return true
	case contract.ReasonOutcomeUnknown, contract.ReasonStorageFailed:
		a.maybe = true
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		a.maybe = true
	default:
		l.t.Errorf("an append failed with what no retry cures: %v", err)
	}
	return false
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// grpcReason returns the reason in an error of a call; empty: it has none.
func grpcReason(err error) contract.Reason {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return contract.Reason(info.Reason)
		}
	}
	return ""
}

// wantPassing: a read fails only for what passes.
func (l *clusterLoad) wantPassing(err error) {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
	default:
		l.t.Errorf("a read failed with what no retry cures: %v", err)
	}
}

var errStale = errors.New("stale")

// lastSeq reads where a run is, through a node, and holds it against what was seen before (READ-2).
// What the node refuses is no fault.
func (l *clusterLoad) lastSeq(ctx context.Context, run string, n *clusterNode) (uint64, error) {
	floor := l.ledger.floor(run)
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	return l.lastSeqSince(ctx, run, n, floor)
}

func (l *clusterLoad) lastSeqSince(ctx context.Context, run string, n *clusterNode, floor uint64) (uint64, error) {
	began := time.Now()
	resp, err := runlogv1.NewEventServiceClient(n.conn).ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: run, PageSize: 1, AfterSeq: floor})
	switch {
	case status.Code(err) == codes.NotFound && floor == 0:
		return 0, nil
	case status.Code(err) == codes.NotFound || err == nil && resp.LastSeq < floor:
		l.t.Errorf("%s: a linearizable read through %s at %v, answered after %v, shows runSeq %d; %d was seen before it was sent (READ-2): %v",
			run, n.name, began.Format(time.StampMicro), time.Since(began), resp.GetLastSeq(), floor, err)
		return 0, errStale
	case err != nil:
		l.wantPassing(err)
		return 0, err
	}
	l.ledger.saw(run, resp.LastSeq)
	return resp.LastSeq, nil
}
