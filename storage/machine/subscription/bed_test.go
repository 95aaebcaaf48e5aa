package subscription_test

import (
	"errors"
	"reflect"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
)

// bed is a store, and what its subscriptions must be.
type bed struct {
	*storagetest.Local
	t     rapid.TB
	model *model
	log   []entry
}

type entry struct {
	index uint64
	data  []byte
}

func open(t rapid.TB) *bed {
	t.Helper()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All(), FeatureLevel: machine.FeatureLevel})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{Local: l, t: t, model: &model{subs: map[subscription.Name]*modelSub{}}}
}

// replay applies the log to another store, and compares.
func (b *bed) replay() {
	b.t.Helper()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), ActiveBytes: 1})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range b.log {
		if _, err := l.Store.Apply(e.index, 1, e.data); err != nil {
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

// do applies commands as one log entry, so many indexes behind the last one, and compares their
// outcomes with the model.
func (b *bed) do(gap uint64, commands ...command) {
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
	e := entry{index: b.Applied().Index + gap, data: p.Seal(int64(len(b.log)) * 10)}
	b.log = append(b.log, e)
	outcomes, err := b.Store.Apply(e.index, 1, slices.Clone(e.data))
	if err != nil {
		b.t.Fatal(err)
	}
	b.model.stamp, b.model.position = b.Applied().PersistedAt, storage.Position(e.index)
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
		if o.Err != nil {
			continue
		}
		if s.decode == nil {
			if len(o.Answers[i].Reply) != 0 {
				b.t.Fatalf("operation %d: reply %q, want none", i, o.Answers[i].Reply)
			}
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

func (b *bed) create(name subscription.Name, s subscription.Settings, at subscription.Start, paused bool) step {
	b.t.Helper()
	op, err := subscription.Create(name, &s, at, paused)
	if err != nil {
		b.t.Fatal(err)
	}
	return step{
		op:     op,
		expect: func(m *model) (any, error) { return m.create(name, s, at, paused) },
		decode: func(reply []byte) (any, error) { return subscription.DecodeCreate(reply) },
	}
}

func (b *bed) update(from subscription.Subscription, to subscription.Settings) step {
	return b.step(subscription.Update(&from, &to))(func(m *model) error { return m.update(&from, to) })
}

func (b *bed) delete(name subscription.Name) step {
	return b.step(subscription.Delete(name))(func(m *model) error { return m.delete(name) })
}

func (b *bed) pause(name subscription.Name, paused bool) step {
	return b.step(subscription.Pause(name, paused))(func(m *model) error { return m.pause(name, paused) })
}

func (b *bed) seek(name subscription.Name, to subscription.Start) step {
	return b.step(subscription.Seek(name, to))(func(m *model) error { return m.seek(name, to) })
}

func (b *bed) settle(items ...subscription.Settlement) step {
	b.t.Helper()
	op, err := subscription.Settle(items)
	if err != nil {
		b.t.Fatal(err)
	}
	return step{
		op:     op,
		expect: func(m *model) (any, error) { return m.settle(items), nil },
		decode: func(reply []byte) (any, error) { return subscription.DecodeSettle(reply) },
	}
}

func (b *bed) letters(discard bool, name subscription.Name, which subscription.Which) step {
	b.t.Helper()
	encode, change := subscription.Redrive, (*model).redrive
	if discard {
		encode, change = subscription.Discard, (*model).discard
	}
	op, err := encode(name, which)
	if err != nil {
		b.t.Fatal(err)
	}
	return step{
		op:     op,
		expect: func(m *model) (any, error) { return change(m, name, which) },
		decode: func(reply []byte) (any, error) { return subscription.DecodeDeadLetters(reply) },
	}
}

// refusal is an operation that is always refused.
func (b *bed) refusal() step { return b.delete(subscription.Name{Tenant: "none", ID: "none"}) }

// of returns a subscription as the model has it.
func (b *bed) of(name subscription.Name) *modelSub {
	b.t.Helper()
	s := b.model.subs[name]
	if s == nil {
		b.t.Fatalf("there is no subscription %s", name)
	}
	return s
}

// item returns a settlement that has effect and changes nothing yet.
func (b *bed) item(name subscription.Name) subscription.Settlement {
	b.t.Helper()
	s := b.of(name)
	return subscription.Settlement{Number: s.Number, Version: s.Version, Position: s.Position}
}
