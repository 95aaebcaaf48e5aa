package enginetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

const (
	// quiet is how long nothing has happened when the clock of the platform is set forward.
	quiet = 50 * time.Millisecond
	// lapse is longer than a lease.
	lapse = 61 * time.Second
)

// bed is what a scenario has.
type bed struct {
	t      testing.TB
	env    *Env
	engine Engine
	log    *client.Client
	// do executes steps; nil: they succeed.
	do func(context.Context, executor.Task) error

	plans    map[string]*plan.Plan // by run; nil: it cannot be read
	reruns   map[string]string     // by run: the one that it reruns
	opened   []*opened
	runs     []string
	kills    int
	numbered int
	// limit ends all waiting.
	limit context.Context
	// changed has a value if an event, an execution or a kill may be new to the scenario.
	changed chan struct{}
	// first is the first action at which a process is killed, and stride the distance to the next.
	first, stride int
	// bridged: engine.Signals hands signals over, and not the scenario.
	bridged bool

	mu         sync.Mutex
	executions []*execution
	faults     map[string][]string      // by run
	accepted   map[string]chan struct{} // by run and signal
	cancelled  map[string]bool          // by run: CancelRun was called
}

// opened is a process with its adapter.
type opened struct {
	*Process
	engine.Adapter
	join func()
}

// newBed returns a bed on a network in fake time; nil: on that of the machine, in real time.
func newBed(t testing.TB, n *network.Network, open func(testing.TB, *Env) Engine) *bed {
	t.Helper()
	base, err := blob.FileURI(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.New(blob.Options{Allow: []string{base}})
	if err != nil {
		t.Fatal(err)
	}
	env := &Env{Network: n, Blobs: blobs, Base: base, Tenant: "acme", Project: "shop", Environment: "prod"}
	limit := t.Context()
	if n == nil {
		env.Server, limit = clienttest.Start(t), await.Context(t)
	} else {
		env.Server = clienttest.Start(t, clienttest.On(n))
	}
	b := &bed{
		t: t, first: 1, stride: 1, env: env, engine: open(t, env), log: env.Server.Client(client.Options{}), plans: map[string]*plan.Plan{},
		reruns: map[string]string{}, faults: map[string][]string{}, accepted: map[string]chan struct{}{}, cancelled: map[string]bool{},
		limit: limit, changed: make(chan struct{}, 1),
	}
	b.follow()
	return b
}

// follow lets the scenario hear of each event.
func (b *bed) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		// If the watch ends, the scenario looks now and then.
		req := &runlogv1.WatchRunsRequest{TenantId: b.env.Tenant, View: runlogv1.WatchView_EVENT}
		for _, err := range b.log.WatchRuns(ctx, req) {
			if err != nil {
				return
			}
			b.change()
		}
	})
	b.t.Cleanup(func() { cancel(); following.Wait() })
}

// change tells the scenario that something may have happened.
func (b *bed) change() {
	select {
	case b.changed <- struct{}{}:
	default: // It has not looked since the last time.
	}
}

// open opens a process that is killed at one of its actions; 0: at none.
func (b *bed) open(action int, late bool) *opened {
	b.t.Helper()
	p := &Process{Env: b.env, Name: fmt.Sprint("process-", len(b.opened)+1), left: action, late: late, changed: b.change}
	if p.ctx, p.cancel = context.WithCancel(context.Background()); action == 0 {
		p.left = -1
	}
	p.Client = p.clientOf(b.t)
	var err error
	if p.Executors, err = executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"test": &executing{b, p}}); err != nil {
		b.t.Fatal(err)
	}
	a, work := b.engine.Open(b.t, p)
	o := &opened{Process: p, Adapter: a}
	o.join = sync.OnceFunc(p.worker(b.t, b.engine, a, work, b.bridged))
	b.t.Cleanup(func() { p.kill(); o.join() })
	b.opened = append(b.opened, o)
	return o
}

// bury waits for the end of what a killed process does, and lets its leases expire.
func (b *bed) bury(p *opened) {
	p.kill()
	p.join()
	b.kills++
	b.env.Server.StepClock(lapse)
	if b.engine.Lapse != nil {
		b.engine.Lapse()
	}
}

// live returns the process that was opened last.
func (b *bed) live() *opened { return b.opened[len(b.opened)-1] }

// document is the text of a plan with some steps.
func (b *bed) document(steps string, members ...string) (id string, body []byte) {
	b.numbered++
	id = fmt.Sprint("plan-", b.numbered)
	return id, fmt.Appendf(nil, `{"schemaVersion":"v1.2","planId":%q,"planVersion":"1","steps":[%s]%s}`, id, steps, strings.Join(members, ""))
}

// store stores the text of a plan, and returns its reference.
func (b *bed) store(id string, body []byte) plan.Ref {
	b.t.Helper()
	sum := sha256.Sum256(body)
	ref := plan.Ref{
		URI: b.env.Base + "/" + id + ".json", SHA256: hex.EncodeToString(sum[:]), SchemaVersion: "v1.2", PlanID: id, PlanVersion: "1",
		SizeBytes: int64(len(body)),
	}
	b.put(ref.URI, body)
	return ref
}

func (b *bed) put(uri string, body []byte) {
	b.t.Helper()
	if err := b.env.Blobs.Put(b.t.Context(), uri, bytes.NewReader(body), int64(len(body))); err != nil {
		b.t.Fatal(err)
	}
}

// request requests a run of some steps, and returns its id.
func (b *bed) request(steps string, members ...string) string {
	b.t.Helper()
	return b.requestPlan(b.planned(steps, members...))
}

// planned stores a plan of some steps.
func (b *bed) planned(steps string, members ...string) (plan.Ref, *plan.Plan) {
	b.t.Helper()
	id, body := b.document(steps, members...)
	p, _, err := plan.Parse(body, plan.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.store(id, body), p
}

// requestPlan requests a run of a plan; nil: its plan cannot be executed.
func (b *bed) requestPlan(ref plan.Ref, p *plan.Plan, change ...func(*runlogv1.RequestRunRequest)) string {
	b.t.Helper()
	run, engineType := fmt.Sprint("run-", len(b.runs)+1), b.live().Capabilities().Adapter
	b.runs, b.plans[run] = append(b.runs, run), p
	req := &runlogv1.RequestRunRequest{
		RunRequestId: run, RunId: run, TenantId: b.env.Tenant, ProjectId: b.env.Project, EnvironmentId: b.env.Environment,
		Queue: b.engine.Queue, PlanRef: ref.Proto(), EngineType: &engineType,
	}
	for _, c := range change {
		c(req)
	}
	if _, err := b.log.RequestRun(b.t.Context(), req); err != nil {
		b.t.Fatal(err)
	}
	return run
}

// event is an event of a run, as far as the suite looks at it.
type event struct {
	seq             uint64
	kind, step      string
	logical, engine uint32
	cause           string // id of the signal
	payload         json.RawMessage
	scope           string
	atLeast         bool // see Engine.Loses
}

// String returns the type with the step and its attempts.
func (e event) String() string {
	if e.step == "" {
		return e.kind
	}
	return fmt.Sprintf("%s %s %d.%d", e.kind, e.step, e.logical, e.engine)
}

// events reads the events of a run. A run without events has none.
func (b *bed) events(run string) (list []event) {
	req := &runlogv1.ReadEventsRequest{RunId: run, PayloadForm: runlogv1.PayloadForm_JSON}
	for r, err := range b.log.ReadEvents(context.Background(), req) {
		if err != nil {
			return list // The next read has the rest.
		}
		list = append(list, event{
			seq: r.GetRunSeq(), kind: r.GetEventType(), step: r.GetStepId(), logical: r.GetLogicalAttemptId(), engine: r.GetEngineAttemptId(),
			cause: r.GetCausedBySignalId(), payload: r.GetPayloadJson(),
			scope:   strings.Join([]string{r.GetTenantId(), r.GetProjectId(), r.GetEnvironmentId(), r.GetPlanId(), r.GetPlanVersion()}, "/"),
			atLeast: b.engine.Loses,
		})
	}
	return list
}

func isEnd(kind string) bool {
	return kind == contract.RunCompleted || kind == contract.RunFailed || kind == contract.RunCancelled
}

// has reports whether an event is among some, by its text or its type.
func has(list []event, text string) bool {
	return slices.ContainsFunc(list, func(e event) bool { return e.is(text) })
}

// is reports whether the event is the one of a text: its type, with its step or not, with its
// attempts or not.
func (e event) is(text string) bool {
	if e.String() == text || e.kind == text || e.kind+" "+e.step == text {
		return true
	}
	same := fmt.Sprintf("%s %s %d.", e.kind, e.step, e.logical)
	least, err := strconv.ParseUint(strings.TrimPrefix(text, same), 10, 32)
	return e.atLeast && err == nil && uint64(e.engine) >= least
}

func ended(list []event) bool {
	for _, e := range list {
		if isEnd(e.kind) {
			return true
		}
	}
	return false
}

// await waits until a condition of the events of a run holds. It fails the test if the run ends
// before that.
func (b *bed) await(run, what string, holds func([]event) bool) []event {
	b.t.Helper()
	var w waiting
	for {
		list := b.events(run)
		switch {
		case holds(list):
			return list
		case ended(list):
			b.t.Fatalf("run %s has ended, and there is no %s among %v", run, what, list)
		}
		b.pass(&w, run, what, list)
	}
}

// waiting is how long a scenario waits, in fake time.
type waiting struct{ began time.Time }

// pass waits until something happens, or nothing has for a moment.
func (b *bed) pass(w *waiting, run, what string, list []event) {
	b.t.Helper()
	if w.began.IsZero() {
		w.began = time.Now()
	}
	b.mu.Lock()
	faults := b.faults[run]
	b.mu.Unlock()
	if len(faults) > 0 { // The run may never end.
		b.t.Fatalf("run %s: %s; its events are %v", run, strings.Join(faults, "; "), list)
	}
	if b.limit.Err() != nil || b.env.Network != nil && time.Since(w.began) > bubble.Limit {
		b.verify() // What is wrong so far may be why.
		b.t.Fatalf("run %s: there is no %s in the time of the test among %v", run, what, list)
	}
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-b.changed:
	case <-b.limit.Done():
	case <-timer.C:
		if b.engine.Tick != nil {
			b.engine.Tick()
		}
		b.expire(run)
	}
}

// expire lets the lease of a run expire that a killed process has: its last poll got the run.
func (b *bed) expire(run string) {
	if b.kills == 0 {
		return
	}
	res, err := b.log.ListQueuedRuns(b.t.Context(), &runlogv1.ListQueuedRunsRequest{
		TenantId: b.env.Tenant, ProjectId: b.env.Project, EnvironmentId: b.env.Environment, Queue: b.engine.Queue,
		State: []runlogv1.QueuedRunState_Value{runlogv1.QueuedRunState_LEASED}, PageSize: 1000,
	})
	if err != nil {
		return // The next look finds it.
	}
	for _, r := range res.GetRuns() {
		for _, p := range b.opened {
			if r.GetRunId() == run && r.GetWorker() == p.Name && p.Killed() {
				b.env.Server.StepClock(lapse)
				return
			}
		}
	}
}

func (b *bed) awaitEvent(run, text string) []event {
	b.t.Helper()
	return b.await(run, text, func(list []event) bool { return has(list, text) })
}

// awaitEnd waits for the end of a run, and compares it with what is expected.
func (b *bed) awaitEnd(run, kind string) []event {
	b.t.Helper()
	list := b.await(run, "end", ended)
	if !has(list, kind) {
		b.t.Errorf("run %s has no %s: %v", run, kind, list)
	}
	return list
}

// ref waits for the engine's reference of a run.
func (b *bed) ref(run string) engine.EngineRunRef {
	b.t.Helper()
	return refIn(b.awaitEvent(run, contract.RunStarted))
}

// refIn returns the reference in RunStarted; empty: there is none.
func refIn(list []event) engine.EngineRunRef {
	for _, e := range list {
		var p struct{ EngineRunRef string }
		if e.kind == contract.RunStarted && json.Unmarshal(e.payload, &p) == nil {
			return engine.EngineRunRef(p.EngineRunRef)
		}
	}
	return ""
}
