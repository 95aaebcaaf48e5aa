package delivery

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
	"runlog/storage/tail"
)

// TestReadOrDueBUS1BUS2BUS6: passes of the router come between any two steps of a read, and while
// the mail is read. Rows change, cursors move, leaders change, and the newest events are no longer
// in memory when the subscription comes to them. Each event is judged by the filter of its place,
// and comes once, in order; none is left when all is quiet.
func TestReadOrDueBUS1BUS2BUS6(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newInterleaving(t)
		defer w.close()
		actions := []struct {
			often int
			do    func()
		}{
			{3, w.append}, {6, w.pass}, {12, w.steps}, {6, w.take}, {2, w.update}, {4, w.passInMail}, {2, w.readElsewhere}, {1, w.seek}, {1, w.leader},
		}
		var turns []func()
		for _, a := range actions {
			turns = append(turns, slices.Repeat([]func(){a.do}, a.often)...)
		}
		for range rapid.IntRange(50, 300).Draw(t, "steps") {
			turns[rapid.IntRange(0, len(turns)-1).Draw(t, "action")]()
		}
		w.drain()
	})
}

// interleaving is a term with one subscription, of which the test is the router and the owner.
type interleaving struct {
	*rapid.T
	local *storagetest.Local
	tail  *tail.Tail
	d     *Dispatcher
	stop  func()

	term *term
	end  context.CancelFunc
	r    *router
	s    *subscriber
	// phase is the next step of the owner, and what the one before has come to.
	phase    int
	from, to storage.Position
	ok       bool
	taking   bool // it is in the mail

	elsewhere storage.Position // where another reader of the tail is
	types     []string         // the filter in the store; empty: any
	events    []placedEvent
	want      []int          // events that are due since the cursor was set, in order
	got       int            // of want
	window    *window.Window // for which these are due
}

// placedEvent is an event, the only one of its run.
type placedEvent struct {
	at        storage.Position
	eventType string
}

func newInterleaving(t *rapid.T) *interleaving {
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All()})
	if err != nil {
		t.Fatal(err)
	}
	w := &interleaving{T: t, local: local, tail: tail.New(tail.Options{Store: local.Store, Bytes: 4 << 10})}
	w.d = &Dispatcher{opts: Options{
		Node: onlyStore{store: local.Store}, Tail: w.tail, Memory: &window.Memory{One: 1 << 20, All: 1 << 20}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		AckTimeout: func([]byte) time.Duration { return time.Hour }, Clock: time.Now,
	}}
	w.stop = local.Store.WatchRows(subscription.Kind, w.d.written)
	w.execute(subscription.Create(subscription.Name{ID: "s"}, w.settings(), subscription.Start{}, false))
	w.begin()
	return w
}

func (w *interleaving) settings() *subscription.Settings {
	return &subscription.Settings{Delivery: []byte("pull"), MaxInFlight: 3, MaxAttempts: 1, Types: w.types}
}

func (w *interleaving) execute(op storage.Operation, err error) storage.Outcome {
	var cmd storage.Command
	if err == nil {
		cmd, err = storage.EncodeCommand(op)
	}
	var list []storage.Outcome
	if err == nil {
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(cmd)
		list, err = w.local.Store.Apply(w.local.Store.Applied().Index+1, 1, p.Seal(1))
	}
	if err == nil {
		err = list[0].Err
	}
	if err != nil {
		w.Fatal(err)
	}
	return list[0]
}

func (w *interleaving) applied() storage.Position {
	applied := w.local.Store.Applied()
	return applied.Position()
}

// begin begins a term with what the store has.
func (w *interleaving) begin() {
	ctx, end := context.WithCancel(context.Background())
	w.term, w.end = newTerm(ctx, &w.d.opts), end
	w.d.next = w.term
	var err error
	if w.r, err = w.term.loadAll(); err != nil {
		w.Fatal(err)
	}
	w.tail.SetWhole(w.term.wants)
	w.s = w.term.list()[0]
	w.s.box.owned = true // No goroutine is.
	w.s.react()
	w.phase, w.taking = 0, false
	w.moved()
}

// notice finds out whether the owner has taken over a seek.
func (w *interleaving) notice() {
	if w.window != w.s.window {
		w.moved()
	}
}

// moved begins again with what is due behind the cursor: only the last filter is known.
func (w *interleaving) moved() {
	w.window, w.want, w.got = w.s.window, nil, 0
	for i, e := range w.events {
		if e.at > w.s.row.Position && w.matches(e.eventType) {
			w.want = append(w.want, i)
		}
	}
}

func (w *interleaving) matches(eventType string) bool {
	return len(w.types) == 0 || slices.Contains(w.types, eventType)
}

// append stores events.
func (w *interleaving) append() {
	w.notice()
	for range rapid.IntRange(1, 4).Draw(w.T, "events") {
		i := len(w.events)
		e := storagetest.Event(fmt.Sprint("run_", i), 0)
		e.Type = rapid.SampledFrom([]string{"a", "b"}).Draw(w.T, "type")
		op, err := storage.AppendOperation(&storage.Append{RunID: e.RunID, Events: []contract.Event{e}})
		w.execute(op, err)
		w.events = append(w.events, placedEvent{w.applied(), e.Type})
		if w.matches(e.Type) {
			w.want = append(w.want, i)
		}
	}
}

// pass is the router's.
func (w *interleaving) pass() {
	if err := w.r.run(); err != nil {
		w.Fatal(err)
	}
}

// readElsewhere is another reader of the tail.
func (w *interleaving) readElsewhere() {
	for {
		b, err := w.tail.Next(context.Background(), w.elsewhere)
		if b == nil || err != nil {
			w.elsewhere = w.applied()
			return
		}
		w.elsewhere = b.To
	}
}

// awake reports whether the subscription has an owner.
func (w *interleaving) awake() bool {
	return w.phase > 0 || len(w.s.box.mail) > 0 || w.s.box.woken || w.s.hasWork()
}

// steps makes some steps of the owner.
func (w *interleaving) steps() {
	for range rapid.IntRange(1, 12).Draw(w.T, "steps") {
		w.own()
	}
}

// own makes one step of the owner.
func (w *interleaving) own() {
	if !w.awake() {
		return
	}
	s := w.s
	switch w.phase {
	case 0:
		s.prepare()
		s.takeNewer()
		w.notice()
	case 1:
		if w.from, w.to, w.ok = s.span(); !w.ok {
			w.phase = 3 // It looks before it sleeps.
		}
	case 2:
		var err error
		w.from, w.ok, err = s.readSpan(w.from, w.to)
		switch {
		case err != nil || !w.ok && !s.fetching:
			w.Fatal("it is not its turn", err)
		case s.fetching: // The mail has it, behind what comes until that is read.
			w.term.owners.Wait()
			w.phase = 3
		}
	case 3:
		s.readOn(w.from)
	case 4:
		s.react()
	}
	w.phase = (w.phase + 1) % 5
}

// passInMail has the router pass, and perhaps the row change, while the owner reads its mail.
func (w *interleaving) passInMail() {
	w.s.post(func() {
		w.update()
		w.append()
		w.pass()
	})
}

// take has the owner take events, and acknowledge them.
func (w *interleaving) take() {
	if !w.taking {
		w.taking = true
		w.s.post(w.fetch)
	}
}

func (w *interleaving) fetch() {
	w.taking = false
	w.notice()
	for range rapid.IntRange(1, 10).Draw(w.T, "take") {
		list, err := w.s.window.Take(w.term.now(), 1)
		if err != nil {
			w.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
		got := list[0].Record
		if w.got == len(w.want) {
			w.Fatalf("%s comes when nothing is due", got.RunID)
		}
		if want := fmt.Sprint("run_", w.want[w.got]); got.RunID != want {
			w.Fatalf("%s comes when %s is due", got.RunID, want)
		}
		w.got++
		w.s.window.Ack(window.Place{RunID: got.RunID, Seq: got.RunSeq})
	}
}

// row is that in the store.
func (w *interleaving) row() *subscription.Subscription {
	row, err := subscription.ByNumber(w.local.Store, w.s.number)
	if err != nil || row == nil {
		w.Fatal(row, err)
	}
	return row
}

// update changes the filter.
func (w *interleaving) update() {
	placed := len(w.s.filters)
	if c := w.term.pending[w.s.number]; c != nil {
		placed += len(c.filters)
	}
	if placed+len(w.s.box.mail) > maxPlaced-2 { // The places of too many are not kept.
		return
	}
	w.notice()
	w.types = rapid.SampledFrom([][]string{nil, {"a"}, {"b"}}).Draw(w.T, "types")
	w.execute(subscription.Update(w.row(), w.settings()))
}

// seek moves the cursor.
func (w *interleaving) seek() {
	to := storage.Position(rapid.IntRange(0, int(w.applied())).Draw(w.T, "to"))
	w.execute(subscription.Seek(subscription.Name{ID: "s"}, subscription.Start{Position: to}))
}

// leader ends the term, perhaps among the steps of the owner, and begins the next one.
func (w *interleaving) leader() {
	if f := w.s.settlement(settleBytes); f.item != nil {
		o := w.execute(subscription.Settle([]subscription.Settlement{*f.item}))
		effective, err := subscription.DecodeSettle(o.Answers[0].Reply)
		if err != nil {
			w.Fatal(err)
		}
		f.settled(effective[0], nil)
	}
	if w.notice(); w.row().CursorVersion == w.s.row.CursorVersion {
		for _, i := range w.want[w.got:] {
			if w.events[i].at <= w.s.row.Position {
				w.Fatalf("run_%d is skipped", i)
			}
		}
	}
	w.finish()
	w.begin()
}

func (w *interleaving) finish() {
	if w.term == nil {
		return
	}
	t := w.term
	w.term, w.d.next = nil, nil
	w.end()
	w.s.box.owned, w.s.box.mail = false, nil
	t.end(ErrNotLeader)
}

// drain lets all come to rest. Then nothing may be left.
func (w *interleaving) drain() {
	for range 3 {
		w.pass()
		for n := 0; w.awake() || w.s.window.Ready(); n++ {
			if w.own(); n > 10_000 {
				w.Fatal("it does not come to rest")
			}
			if w.s.window.Ready() {
				w.take()
			}
		}
	}
	if w.got != len(w.want) {
		w.Errorf("run_%d does not come", w.want[w.got])
	}
}

func (w *interleaving) close() {
	w.stop()
	w.finish()
	if err := w.tail.Close(); err != nil {
		w.Error(err)
	}
	if err := w.local.Close(); err != nil {
		w.Error(err)
	}
}
