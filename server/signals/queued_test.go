package signals

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// requested is the run of a fake that waits in a queue.
const requested = "requested"

// event appends an event of the requested run.
func event(t *testing.T, eventType string) storage.Operation {
	t.Helper()
	e := storagetest.Event(requested, 0)
	e.Type, e.StepID = eventType, ""
	e.SetAttempt(1)
	return must(t)(storage.AppendOperation(&storage.Append{RunID: requested, Events: []contract.Event{e}}))
}

func must(t *testing.T) func(storage.Operation, error) storage.Operation {
	t.Helper()
	return func(op storage.Operation, err error) storage.Operation {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
}

// TestCancelRacesStartQUE10: what comes between reading a queued run and deciding its CANCEL
// counts. Either the run is started, and its engine or its worker hears the signal; or it ends, and
// its worker starts nothing. After no entry of the log does a run wait, or is leased to be started,
// that has accepted a CANCEL: the leader may die after any (SIG-2). No worker gets such a run, also
// when a lease under which it was executed has expired.
func TestCancelRacesStartQUE10(t *testing.T) {
	t.Parallel()
	lease := must(t)(queue.Lease(&queue.LeaseRequest{Max: 1}))
	release := func(outcome queue.Outcome) storage.Operation {
		return must(t)(queue.Release(&queue.LeaseRelease{RunID: requested, Fence: 2, Outcome: outcome}))
	}
	for what, c := range map[string]struct {
		before, between []storage.Operation // the run is read
		want            string              // decision, state in the queue, events
	}{
		"nothing, in the queue": {nil, nil, "ACCEPTED ended RunQueued SignalAccepted RunCancelled"},
		"nothing, leased":       {[]storage.Operation{lease}, nil, "ACCEPTED ended RunQueued SignalAccepted RunCancelled"},
		"a lease": {nil, []storage.Operation{lease},
			"ACCEPTED ended RunQueued SignalAccepted RunCancelled"},
		"a start": {[]storage.Operation{lease}, []storage.Operation{release(queue.Started)}, "ACCEPTED running RunQueued SignalAccepted"},
		"a start with its event": {[]storage.Operation{lease}, []storage.Operation{release(queue.Started), event(t, contract.RunStarted)},
			"ACCEPTED running RunQueued RunStarted SignalAccepted"},
		"a start that has failed": {[]storage.Operation{lease}, []storage.Operation{release(queue.Failed)}, "ACCEPTED ended RunQueued SignalAccepted RunCancelled"},
		"a start that is skipped": {[]storage.Operation{lease}, []storage.Operation{release(queue.Skipped), event(t, contract.RunCancelled)},
			"RUN_ENDED ended RunQueued RunCancelled SignalRejected"},
		"a requeue": {[]storage.Operation{lease, release(queue.Started)}, []storage.Operation{must(t)(queue.Requeue(requested, nil))},
			"ACCEPTED ended RunQueued SignalAccepted RunCancelled"},
		"nothing, executed": {[]storage.Operation{lease, event(t, contract.RunStarted)}, nil, "ACCEPTED running RunQueued RunStarted SignalAccepted"},
		"a start under its lease": {[]storage.Operation{lease}, []storage.Operation{event(t, contract.RunStarted)},
			"ACCEPTED running RunQueued RunStarted SignalAccepted"},
		"a requeue of a started run": {[]storage.Operation{lease, release(queue.Started), event(t, contract.RunStarted)},
			[]storage.Operation{must(t)(queue.Requeue(requested, nil))}, "ACCEPTED ended RunQueued RunStarted SignalAccepted RunCancelled"},
		"nothing, put back": {[]storage.Operation{lease, release(queue.Started), event(t, contract.RunStarted), must(t)(queue.Requeue(requested, nil))},
			nil, "ACCEPTED ended RunQueued RunStarted SignalAccepted RunCancelled"},
		"a lease, put back": {[]storage.Operation{lease, release(queue.Started), event(t, contract.RunStarted), must(t)(queue.Requeue(requested, nil))},
			[]storage.Operation{lease}, "ACCEPTED running RunQueued RunStarted SignalAccepted"},
		"another cancellation": {nil, []storage.Operation{must(t)(queue.Cancel(requested)), event(t, contract.RunCancelled)},
			"RUN_ENDED ended RunQueued RunCancelled SignalRejected"},
	} {
		f, s := newFake(t)
		f.apply(event(t, contract.RunQueued), must(t)(queue.Request(&queue.RunRequest{
			Name: queue.Name{Tenant: "tenant", Project: "project", Environment: "prod", Queue: "q"}, RunID: requested,
		})))
		for _, op := range c.before {
			f.apply(op)
		}
		f.applied = func() {
			v, err := f.local.Store.View(requested)
			if err != nil {
				t.Fatal(err)
			}
			snapshot, err := f.Snapshot(v)
			if err != nil {
				t.Fatal(err)
			}
			if state := f.state(); snapshot.PendingOf(contract.SignalCancel, "") != nil && (state == queue.Ready || state == queue.Delayed || state == queue.Leased) {
				t.Errorf("%s: the run has accepted a CANCEL, and is %s", what, state)
			}
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if c.between != nil {
			f.before = once(func() {
				if o := f.apply(c.between...); o.Err != nil {
					t.Fatalf("%s: %v", what, o.Err)
				}
			})
		}
		resp, err := s.SendSignal(asLocal(t.Context()), &runlogv1.SendSignalRequest{RunId: requested, SignalId: "s", SignalType: contract.SignalCancel})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		decision := resp.RejectReason
		if resp.Decision == runlogv1.Decision_ACCEPTED {
			decision = "ACCEPTED"
		}
		if got := fmt.Sprint(decision, " ", f.state(), f.types()); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
		if o := f.apply(release(queue.Started)); f.state() == queue.Ended && o.Err == nil {
			t.Errorf("%s: the worker has started the run", what)
		}
		f.clock += int64(time.Hour) // All leases expire.
		if o := f.apply(lease); o.Err != nil || len(leasesOf(t, o).List) > 0 {
			t.Errorf("%s: leased again: %+v", what, o)
		}
	}
}

func leasesOf(t *testing.T, o storage.Outcome) queue.Leases {
	t.Helper()
	got, err := queue.DecodeLease(o.Answers[0].Reply)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// state is that of the requested run in its queue.
func (f *fake) state() queue.State {
	f.t.Helper()
	r, _, err := queue.ReadRun(f.local.Store, requested)
	if err != nil {
		f.t.Fatal(err)
	}
	if r == nil {
		return queue.Ended
	}
	return r.State
}

// types lists the events of the requested run, each with a space before it.
func (f *fake) types() string {
	f.t.Helper()
	list, err := f.local.Events(requested, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	var out strings.Builder
	for i := range list {
		out.WriteString(" " + list[i].Type)
	}
	return out.String()
}
