package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeLog has the rules of one queue in memory (QUE-6 to QUE-9), without backoff. A lease of ttl
// expires by time.Now and by expire.
type fakeLog struct {
	mu          sync.Mutex
	ahead       time.Duration // of time.Now
	runs        []*fakeRun
	maxAttempts uint32
	renewals    int
	asked       int           // calls of LeaseRuns
	leaseErr    error         // of LeaseRuns
	silent      chan struct{} // not nil: renewals are not answered before it is closed
}

type fakeRun struct {
	meta     *runlogv1.Run
	context  *structpb.Struct
	state    runlogv1.QueuedRunState_Value
	outcome  runlogv1.LeaseOutcome_Value
	fence    uint64
	attempts uint32
	expires  time.Time
	events   []string
	keys     map[string]bool
	last     *runlogv1.EventWrite
	failure  string // of the last release
}

func newFakeLog() *fakeLog { return &fakeLog{maxAttempts: 1000} }

func refusal(reason client.Reason, fence, current uint64) error {
	return &client.Error{Code: codes.FailedPrecondition, Reason: reason, Message: "refused by the test's log",
		Metadata: map[string]string{"fence": strconv.FormatUint(fence, 10), "current_fence": strconv.FormatUint(current, 10)}}
}

// errEnded is the error of a call whose context has ended.
var errEnded = &client.Error{Code: codes.Canceled, Message: "the context has ended"}

func (f *fakeLog) now() time.Time { return time.Now().Add(f.ahead) }

func (f *fakeLog) find(id string) *fakeRun {
	for _, r := range f.runs {
		if r.meta.GetRunId() == id {
			return r
		}
	}
	return nil
}

// held returns the run of a lease, or why there is none.
func (f *fakeLog) held(id string, fence uint64) (*fakeRun, error) {
	r := f.find(id)
	switch {
	case fence != r.fence:
		return nil, refusal(client.ReasonLeaseLost, fence, r.fence)
	default:
		return r, nil
	}
}

func (f *fakeLog) lasts(r *fakeRun) bool {
	return r.state == runlogv1.QueuedRunState_LEASED && r.expires.After(f.now())
}

// writes tells whether a fence stores anything: not when its lease has ended, unless as STARTED.
func (f *fakeLog) writes(r *fakeRun, fence uint64) bool {
	return fence == r.fence && r.state != runlogv1.QueuedRunState_READY && (r.state != runlogv1.QueuedRunState_LEASED || f.lasts(r))
}

func (f *fakeLog) LeaseRuns(ctx context.Context, req *runlogv1.LeaseRunsRequest) (*runlogv1.LeaseRunsResponse, error) {
	for end := time.Now().Add(req.GetWait().AsDuration()); ; time.Sleep(50 * time.Millisecond) {
		res, err := f.take(req)
		if err != nil || len(res.Leases) > 0 || !time.Now().Before(end) {
			return res, err
		}
		if ctx.Err() != nil {
			return nil, errEnded
		}
	}
}

func (f *fakeLog) take(req *runlogv1.LeaseRunsRequest) (*runlogv1.LeaseRunsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked++; f.leaseErr != nil {
		return nil, f.leaseErr
	}
	res := &runlogv1.LeaseRunsResponse{}
	for _, r := range f.runs {
		if r.state == runlogv1.QueuedRunState_LEASED && !f.lasts(r) {
			r.state = runlogv1.QueuedRunState_READY
		}
		if r.state != runlogv1.QueuedRunState_READY || len(res.Leases) == int(req.GetMax()) {
			continue
		}
		r.state, r.outcome = runlogv1.QueuedRunState_LEASED, 0
		r.fence += 2 - r.fence%2
		r.attempts++
		r.expires = f.now().Add(req.GetTtl().AsDuration())
		res.Leases = append(res.Leases, &runlogv1.Lease{RunId: r.meta.GetRunId(), Fence: r.fence, StartAttempt: r.attempts,
			ExpireTime: timestamppb.New(r.expires), Run: proto.CloneOf(r.meta), Context: r.context})
	}
	return res, nil
}

func (f *fakeLog) RenewLease(ctx context.Context, req *runlogv1.RenewLeaseRequest) (*runlogv1.RenewLeaseResponse, error) {
	if f.silent != nil {
		select {
		case <-f.silent:
		case <-ctx.Done():
			return nil, &client.Error{Code: codes.DeadlineExceeded, Message: "no answer"}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewals++
	r, err := f.held(req.GetRunId(), req.GetFence())
	if err == nil && !f.lasts(r) {
		err = refusal(client.ReasonLeaseLost, r.fence, r.fence)
	}
	if err != nil {
		return nil, err
	}
	r.expires = f.now().Add(req.GetTtl().AsDuration())
	return &runlogv1.RenewLeaseResponse{ExpireTime: timestamppb.New(r.expires)}, nil
}

func (f *fakeLog) ReleaseLease(ctx context.Context, req *runlogv1.ReleaseLeaseRequest) (*runlogv1.ReleaseLeaseResponse, error) {
	if ctx.Err() != nil {
		return nil, errEnded
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.held(req.GetRunId(), req.GetFence())
	if err != nil {
		return nil, err
	}
	again := r.state == runlogv1.QueuedRunState_ENDED || !f.lasts(r) && r.outcome == req.GetOutcome()
	if !again && !f.lasts(r) {
		return nil, refusal(client.ReasonLeaseLost, r.fence, r.fence)
	}
	if err := r.storeStart(req); err != nil {
		return nil, err
	}
	if again {
		return &runlogv1.ReleaseLeaseResponse{State: r.state, Idempotent: true}, nil
	}
	r.outcome, r.failure = req.GetOutcome(), req.GetError()
	switch {
	case r.outcome == runlogv1.LeaseOutcome_STARTED:
		r.state = runlogv1.QueuedRunState_RUNNING
	case r.outcome == runlogv1.LeaseOutcome_SKIPPED:
		r.end(contract.RunCancelled)
	case r.attempts >= f.maxAttempts:
		r.end(contract.RunFailed)
	default:
		r.state = runlogv1.QueuedRunState_READY
	}
	return &runlogv1.ReleaseLeaseResponse{State: r.state}, nil
}

// storeStart stores the reference and the events of a release, all or none.
func (r *fakeRun) storeStart(req *runlogv1.ReleaseLeaseRequest) error {
	if len(req.GetEvents()) > 0 {
		if _, err := contract.ValidateAll(req.GetEvents(), contract.Options{RunID: req.GetRunId()}); err != nil {
			return err
		}
	}
	var fresh []*runlogv1.EventWrite
	for _, e := range req.GetEvents() {
		if !r.keys[e.GetIdempotencyKey()] {
			fresh = append(fresh, e)
		}
	}
	was := r.meta.EngineRunRef
	switch {
	case len(fresh) > 0 && r.state == runlogv1.QueuedRunState_ENDED:
		return refusal(client.ReasonLeaseLost, r.fence, r.fence)
	case req.EngineRunRef != nil && was != nil && *was != req.GetEngineRunRef():
		return errOtherRef
	}
	if req.EngineRunRef != nil {
		r.meta.EngineRunRef = req.EngineRunRef
	}
	for _, e := range fresh {
		r.keys[e.GetIdempotencyKey()] = true
		r.last = e
		r.store(e.GetEventType())
	}
	return nil
}

var errOtherRef = &client.Error{Code: codes.AlreadyExists, Reason: client.ReasonRunAlreadyExists, Message: "has another reference"}

func (r *fakeRun) end(eventType string) {
	r.state = runlogv1.QueuedRunState_ENDED
	r.fence++ // no worker has it
	r.store(eventType)
}

func (r *fakeRun) store(eventType string) {
	r.events = append(r.events, eventType)
	r.meta.LastSeq++
}

func (f *fakeLog) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if ctx.Err() != nil {
		return nil, errEnded
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r, event := f.find(req.GetRunId()), req.GetEvents()[0]
	if _, err := contract.ValidateAll(req.GetEvents(), contract.Options{RunID: req.GetRunId()}); err != nil {
		return nil, err
	}
	switch {
	case r.keys[event.GetIdempotencyKey()]:
		return &runlogv1.AppendEventsResponse{}, nil
	case req.Fence != nil && !f.writes(r, req.GetFence()):
		return nil, refusal(client.ReasonLeaseLost, req.GetFence(), r.fence)
	case req.ExpectedLastSeq != nil && req.GetExpectedLastSeq() != r.meta.GetLastSeq():
		return nil, &client.Error{Code: codes.Aborted, Reason: client.ReasonSequenceConflict, Message: "another event came first",
			Metadata: map[string]string{"last_seq": strconv.FormatUint(r.meta.GetLastSeq(), 10)}}
	}
	r.keys[event.GetIdempotencyKey()] = true
	r.last = event
	r.store(event.GetEventType())
	if slices.Contains([]string{contract.RunCompleted, contract.RunFailed, contract.RunCancelled}, event.GetEventType()) {
		r.state = runlogv1.QueuedRunState_ENDED
	}
	return &runlogv1.AppendEventsResponse{}, nil
}

// request queues so many runs.
func (f *fakeLog) request(_ testing.TB, n int) (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		ids = append(ids, fmt.Sprint("run-", len(f.runs)+1))
		r := &fakeRun{state: runlogv1.QueuedRunState_READY, fence: 1, keys: map[string]bool{}, meta: &runlogv1.Run{
			RunId: ids[len(ids)-1], TenantId: "acme", ProjectId: "web", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}}}
		r.store(contract.RunQueued)
		f.runs = append(f.runs, r)
	}
	return ids
}

// expire ends all leases.
func (f *fakeLog) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += time.Hour
}

// cancel ends a run as CancelQueued does.
func (f *fakeLog) cancel(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.find(id).end(contract.RunCancelled)
}

// stored returns what the log has of a run.
func (f *fakeLog) stored(_ testing.TB, id string) (ref string, state runlogv1.QueuedRunState_Value, events []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.find(id)
	return r.meta.GetEngineRunRef(), r.state, slices.Clone(r.events)
}
