package queue_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// bed is a store, and what its queues must be.
type bed struct {
	*storagetest.Local
	t     rapid.TB
	model *model
	log   [][]byte
}

func open(t rapid.TB) *bed {
	t.Helper()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All(), FeatureLevel: machine.FeatureLevel})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{Local: l, t: t, model: newModel()}
}

// replay applies the log to another store, which keeps next to nothing in memory, and compares.
func (b *bed) replay() {
	b.t.Helper()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), ActiveBytes: 1, RowBytes: 1})
	if err != nil {
		b.t.Fatal(err)
	}
	for i, entry := range b.log {
		if _, err := l.Store.Apply(uint64(i)+1, 1, entry); err != nil {
			b.t.Fatal(err)
		}
	}
	if got, want := l.Applied(), b.Applied(); got.RollingHash != want.RollingHash || got.Index != want.Index {
		b.t.Fatalf("another store is at %d with rolling hash %x; want %d, %x", got.Index, got.RollingHash, want.Index, want.RollingHash)
	}
	if err := l.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// step is an operation with what must come of it. expect is called once, in the order of the log.
type step struct {
	op     storage.Operation
	expect func(m *model) (reply any, refused error)
	decode func(reply []byte) (any, error) // nil: there is no reply
}

// command is the operations that take effect together.
type command []step

// do applies commands as one log entry, and compares their outcomes with the model.
func (b *bed) do(clock int64, commands ...command) {
	b.t.Helper()
	p := storage.NewProposal(storagetest.Cluster, 0)
	for _, c := range commands {
		ops := make([]storage.Operation, len(c))
		for i := range c {
			ops[i] = c[i].op
		}
		encoded, err := storage.EncodeCommand(ops...)
		if err != nil {
			b.t.Fatal(err)
		}
		p.Add(encoded)
	}
	b.log = append(b.log, p.Seal(clock))
	outcomes, err := b.Store.Apply(b.Applied().Index+1, 1, slices.Clone(b.log[len(b.log)-1]))
	if err != nil {
		b.t.Fatal(err)
	}
	b.model.stamp = b.Applied().PersistedAt
	for i, c := range commands {
		b.compare(c, &outcomes[i])
	}
}

func (b *bed) compare(c command, o *storage.Outcome) {
	b.t.Helper()
	before := b.model.clone()
	for i, s := range c {
		want, refused := s.expect(b.model)
		if refused != nil {
			*b.model = *before
			if !reflect.DeepEqual(o.Err, refused) {
				b.t.Fatalf("operation %d: refused with %T %v, want %T %v", i, o.Err, o.Err, refused, refused)
			}
			return
		}
		if _, other := errors.AsType[*storage.NotAppliedError](o.Answers[i].Err); o.Answers[i].Err != nil && !other {
			b.t.Fatalf("operation %d was refused: %T %v", i, o.Err, o.Err)
		}
		if s.decode == nil || o.Err != nil {
			continue
		}
		got, err := s.decode(o.Answers[i].Reply)
		if err != nil || !reflect.DeepEqual(got, want) {
			b.t.Fatalf("operation %d: reply %+v, %v; want %+v", i, got, err, want)
		}
	}
	if o.Err != nil {
		b.t.Fatalf("refused: %v", o.Err)
	}
}

func (b *bed) step(op storage.Operation, err error) func(func(*model) error) step {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	return func(expect func(*model) error) step {
		return step{op: op, expect: func(m *model) (any, error) { return nil, expect(m) }}
	}
}

func (b *bed) answered(op storage.Operation, err error) func(func(*model) (any, error), func([]byte) (any, error)) step {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	return func(expect func(*model) (any, error), decode func([]byte) (any, error)) step {
		return step{op: op, expect: expect, decode: decode}
	}
}

// event appends an event of a run, which it makes if need be. n tells events of a type apart.
func (b *bed) event(runID string, name queue.Name, eventType string, n int) step {
	b.t.Helper()
	return b.append(runID, name, eventType, n, nil)
}

// append appends an event of a run: under a fence, if it is not nil.
func (b *bed) append(runID string, name queue.Name, eventType string, n int, fence *uint64) step {
	b.t.Helper()
	e := storagetest.Event(runID, n)
	e.Type, e.TenantID, e.ProjectID, e.EnvironmentID = eventType, name.Tenant, name.Project, name.Environment
	if contract.ScopeOf(eventType) == contract.ScopeRun {
		e.StepID = ""
	}
	if eventType == contract.SignalAccepted {
		e.Payload = []byte(`{"signalType":"CANCEL"}`)
	}
	e.IdempotencyKey = fmt.Sprintf("%s-%s-%d", runID, eventType, n)
	e.KeyDerived = false
	op, err := storage.AppendOperation(&storage.Append{RunID: runID, Events: []contract.Event{e}, Fence: fence})
	return b.step(op, err)(func(m *model) error {
		if fence != nil {
			if err := m.mayWrite(runID, e.IdempotencyKey, *fence); err != nil {
				return err
			}
		}
		m.append(runID, e.IdempotencyKey, eventType, contract.NoticeOf(&e))
		return nil
	})
}

// refusal is an append that is always refused.
func (b *bed) refusal(runID string) step {
	b.t.Helper()
	last := uint64(1) << 40
	e := storagetest.Event(runID, 1<<20)
	e.Absent = contract.AbsentTenant | contract.AbsentProject | contract.AbsentEnvironment
	e.TenantID, e.ProjectID, e.EnvironmentID = "", "", ""
	op, err := storage.AppendOperation(&storage.Append{RunID: runID, Events: []contract.Event{e}, ExpectedLastSeq: &last})
	return b.step(op, err)(func(m *model) error {
		if m.seqs(runID) == 0 {
			return &storage.UnscopedError{RunID: runID, Fields: []string{"tenantId", "projectId", "environmentId"}}
		}
		return &storage.SequenceError{RunID: runID, Expected: last, Last: m.seqs(runID)}
	})
}

func (b *bed) request(r queue.RunRequest) step {
	return b.answered(queue.Request(&r))(
		func(m *model) (any, error) { return m.request(&r, false) },
		func(reply []byte) (any, error) { return queue.DecodeRequest(reply) })
}

func (b *bed) checked(r queue.RunRequest) step {
	return b.step(queue.Check(&r))(func(m *model) error {
		_, err := m.request(&r, true)
		return err
	})
}

// enqueue is the command of a run that is requested.
func (b *bed) enqueue(r queue.RunRequest) command {
	return command{b.checked(r), b.event(r.RunID, r.Name, contract.RunQueued, 0), b.request(r)}
}

func (b *bed) lease(r queue.LeaseRequest) step {
	return b.answered(queue.Lease(&r))(
		func(m *model) (any, error) {
			before := m.clone()
			got := m.lease(&r)
			for _, l := range got.List {
				most, held := m.queues[l.Name].settings.MaxRunning, m.count(l.Name, queue.Leased, queue.Running)
				if before.runs[l.RunID].Cancelling {
					b.t.Fatalf("lease %+v of a run that has accepted a CANCEL", l)
				}
				if most > 0 && held > most || l.Fence <= before.fences[l.RunID] {
					b.t.Fatalf("lease %+v: %d runs hold slots, at most %d; the fence was %d", l, held, most, before.fences[l.RunID])
				}
			}
			return got, nil
		},
		func(reply []byte) (any, error) { return queue.DecodeLease(reply) })
}

func (b *bed) tick(n int) step {
	return b.answered(queue.Tick(n))(
		func(m *model) (any, error) {
			timers, expired := m.tick(n)
			return queue.Ticked{Timers: timers, Expired: expired, More: timers == n}, nil
		},
		func(reply []byte) (any, error) { return queue.DecodeTick(reply) })
}

func (b *bed) release(l queue.LeaseRelease) step {
	type releaseReply struct {
		state    queue.State
		repeated bool
	}
	return b.answered(queue.Release(&l))(
		func(m *model) (any, error) {
			state, repeated, err := m.release(&l)
			return releaseReply{state, repeated}, err
		},
		func(reply []byte) (any, error) {
			state, repeated, err := queue.DecodeRelease(reply)
			return releaseReply{state, repeated}, err
		})
}

// settle says which status a run has after an event.
func (b *bed) settle(runID string, lastSeq uint64, status contract.RunStatus) step {
	b.t.Helper()
	return b.step(queue.Settle(runID, lastSeq, status))(func(m *model) error { return m.settle(runID, lastSeq, status) })
}

func (b *bed) requeue(runID string, lastSeq *uint64) step {
	type requeueReply struct {
		state    queue.State
		repeated bool
	}
	return b.answered(queue.Requeue(runID, lastSeq))(
		func(m *model) (any, error) {
			state, repeated, err := m.requeue(runID, lastSeq)
			return requeueReply{state, repeated}, err
		},
		func(reply []byte) (any, error) {
			state, repeated, err := queue.DecodeRequeue(reply)
			return requeueReply{state, repeated}, err
		})
}

func keyOf(n int) [32]byte { return sha256.Sum256(fmt.Append(nil, n)) }

func runID(n int) string { return fmt.Sprintf("run-%d", n) }

// refused applies one command that must be refused, and returns why.
func (b *bed) refused(clock int64, op storage.Operation, err error) error {
	b.t.Helper()
	c, errCommand := storage.EncodeCommand(op)
	if err := errors.Join(err, errCommand); err != nil {
		b.t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(c)
	outcomes, err := b.Store.Apply(b.Applied().Index+1, 1, p.Seal(clock))
	if err != nil {
		b.t.Fatal(err)
	}
	return outcomes[0].Err
}
