package window_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// TestDeliversAllBUS3BUS4BUS6 draws logs, consumers, changes and crashes, and compares all that a
// window hands out and records with a model: the events of a run come in order, dead letters only
// once they are redriven, and nothing is skipped. What was recorded comes never again.
func TestDeliversAllBUS3BUS4BUS6(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		actions := map[string]func(){
			"append": w.append, "push": w.push, "take": w.take, "ack": w.ack, "ack any": w.ackAny, "fail": w.fail,
			"return": w.giveBack, "tick": w.advance, "settle": w.settle, "answer": w.answer, "crash": w.crashAnyhow,
			"redrive": w.redrive, "discard": w.discard, "change": w.change, "refresh": w.refreshIf,
			"spill": func() { w.window.Spill() }, "settle less": w.settleLess, "flood": w.flood, "fail all": w.failAll,
		}
		often := []string{"append", "push", "push", "take", "take", "ack", "ack", "ack", "fail", "fail", "tick", "settle", "answer", "answer"}
		names := rapid.SampledFrom(append(often, slices.Sorted(maps.Keys(actions))...))
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			w.faults = rapid.IntRange(0, 9).Draw(t, "faults") == 0
			actions[names.Draw(t, "action")]()
			w.check()
		}
		w.drain()
	})
}

// append adds an entry to the log.
func (w *world) append() {
	w.end += storage.Position(rapid.IntRange(1, 3).Draw(w.T, "gap"))
	n := rapid.IntRange(1, 4).Draw(w.T, "events")
	if rapid.IntRange(0, 19).Draw(w.T, "large") == 0 {
		n = 80
	}
	w.appendTo(fmt.Sprint("run_", rapid.IntRange(0, w.many-1).Draw(w.T, "run")), n)
}

// flood adds an event of each run to the log.
func (w *world) flood() {
	for i := range w.many {
		w.end++
		w.appendTo(fmt.Sprint("run_", i), 1)
	}
}

func (w *world) appendTo(runID string, n int) {
	for range n {
		list := w.runs[runID]
		e := &event{Event: &window.Event{Run: &storage.Run{}, Record: &storage.Record{}}, matches: rapid.IntRange(0, 3).Draw(w.T, "matches") > 0}
		e.Run.RunID, e.Record.RunID = runID, runID
		e.Record.RunSeq, e.Record.Position, e.Record.PersistedAt = uint64(len(list))+1, w.end, int64(w.end)
		e.Record.Payload = make([]byte, rapid.IntRange(0, 2000).Draw(w.T, "payload"))
		w.runs[runID] = append(list, e)
		w.log = append(w.log, e)
	}
}

// push hands a part of the log to the window, which may be full.
func (w *world) push() {
	from := w.window.ReadTo()
	if from < w.end {
		w.pushTo(from + storage.Position(rapid.IntRange(1, int(w.end-from)).Draw(w.T, "to")))
	}
}

func (w *world) pushTo(to storage.Position) {
	var list []*window.Event
	for _, e := range w.log {
		if e.matches && e.Record.Position > w.window.ReadTo() && e.Record.Position <= to {
			list = append(list, e.Event)
		}
	}
	w.window.Push(to, list...)
	if w.window.ReadTo() != to {
		w.Fatalf("read to %d; want %d", w.window.ReadTo(), to)
	}
}

func (w *world) take() { w.takeSome(rapid.IntRange(1, 10).Draw(w.T, "n")) }

func (w *world) takeSome(n int) {
	before, ready := len(w.underWay()), w.window.Ready()
	list, err := w.window.Take(w.now, n)
	if err != nil && (!w.faults || !errors.Is(err, errRead)) {
		w.Fatal(err)
	}
	if len(list) > 0 && (!ready || w.settings.Paused || before+len(list) > w.settings.MaxInFlight || len(list) > n) {
		w.Fatalf("%d events, with %d under way; ready: %t, paused: %t", len(list), before, ready, w.settings.Paused)
	}
	if err == nil && len(list) < n && w.window.Ready() {
		w.Fatalf("%d events, and there are others", len(list))
	}
	for i := range list {
		w.handed(&list[i])
	}
}

func (w *world) drawUnder() *event {
	list := w.underWay()
	if len(list) == 0 {
		return nil
	}
	return rapid.SampledFrom(list).Draw(w.T, "event")
}

func (w *world) ack() {
	e := w.drawUnder()
	if e == nil {
		return
	}
	if !w.window.Ack(place(e)) {
		w.Fatalf("the acknowledgement of %v was not taken", place(e))
	}
	w.acknowledged(e)
}

// ackAny acknowledges what this window or one before has handed out at some time.
func (w *world) ackAny() {
	if len(w.seen) == 0 {
		return
	}
	p := rapid.SampledFrom(w.seen).Draw(w.T, "place")
	e := w.at(p)
	if e.Record.Position > w.window.ReadTo() { // It cannot be owed yet.
		return
	}
	switch taken := w.window.Ack(p); {
	case taken:
		w.acknowledged(e)
	case e.under:
		w.Fatalf("the acknowledgement of %v was not taken, which is under way", p)
	}
}

func (w *world) fail() {
	e := w.drawUnder()
	if e == nil {
		return
	}
	permanent := rapid.IntRange(0, 5).Draw(w.T, "permanent") == 0
	after := rapid.SampledFrom([]time.Duration{-1, 0, 30}).Draw(w.T, "after")
	if !w.window.Fail(place(e), "why", permanent, after, w.now) {
		w.Fatalf("the failure of %v was not taken", place(e))
	}
	w.attemptFailed(e, permanent, after)
	if w.window.Fail(place(e), "again", true, -1, w.now) {
		w.Fatalf("the failure of %v was taken, which is not under way", place(e))
	}
}

// failAll is a sink that is down for some time: everything fails that comes.
func (w *world) failAll() {
	for range rapid.IntRange(1, 4).Draw(w.T, "rounds") {
		for more := true; more; {
			w.takeSome(100)
			list := w.underWay()
			for _, e := range list {
				if !w.window.Fail(place(e), "no route to host", false, -1, w.now) {
					w.Fatalf("the failure of %v was not taken", place(e))
				}
				w.attemptFailed(e, false, -1)
			}
			more = len(list) > 0
		}
		w.advance()
	}
}

func (w *world) giveBack() {
	if e := w.drawUnder(); e != nil {
		w.window.Return(place(e))
		w.ends(e)
	}
}

func (w *world) advance() {
	w.now += int64(rapid.IntRange(1, 30).Draw(w.T, "time"))
	w.handleTime()
}

func (w *world) handleTime() {
	late := false
	for _, e := range w.log {
		e.waits = e.waits && e.earliest > w.now
	}
	for _, e := range w.underWay() {
		if e.deadline != 0 && e.deadline <= w.now {
			late = true
			w.attemptFailed(e, false, -1)
		}
	}
	if w.window.Tick(w.now) != late {
		w.Fatalf("a deadline has passed: %t", late)
	}
	if next := w.window.Next(); next != 0 && next <= w.now {
		w.Fatalf("at %d, something is left that was due at %d", w.now, next)
	}
}

func (w *world) settle() {
	if w.pending == nil {
		w.pending, w.madeAt = w.window.Settle(w.most), w.tick
		w.tick++
	}
}

// settleLess makes a settlement for a row that is at a limit.
func (w *world) settleLess() {
	if w.pending != nil {
		return
	}
	s := w.window.SettleLess(w.most)
	w.pending, s.Part = s, true
	after := rows{owed: maps.Clone(w.store.owed), letters: maps.Clone(w.store.letters)}
	after.settle(s)
	if !w.changed && (s.Position != w.store.position || len(after.owed) > len(w.store.owed) || len(after.letters) > len(w.store.letters)) {
		w.Fatalf("a row at a limit would grow: %+v", s)
	}
}

// answer is the store's, to a settlement.
func (w *world) answer() {
	if s := w.pending; s != nil && w.record() {
		w.window.Settled(s)
		if len(s.Parked) > 0 {
			w.window.Recount(uint64(len(w.store.letters)))
		}
	}
}

// crashAnyhow ends the window, perhaps with a settlement on its way, which is recorded or not.
func (w *world) crashAnyhow() {
	if w.pending != nil && rapid.Bool().Draw(w.T, "recorded") {
		w.record()
	}
	w.crash()
}

func (w *world) drawLetters() (list []window.Place) {
	for _, e := range w.log {
		if _, is := w.store.letters[place(e)]; is && rapid.Bool().Draw(w.T, "chosen") {
			list = append(list, place(e))
		}
	}
	return list
}

func (w *world) redrive() {
	for _, p := range w.drawLetters() {
		w.store.letters[p], w.changed = true, true
	}
}

func (w *world) discard() {
	for _, p := range w.drawLetters() {
		delete(w.store.letters, p)
		w.changed = true
	}
}

func (w *world) change() {
	w.changed = true
	w.next.HoldRun = rapid.Bool().Draw(w.T, "hold run")
	w.next.Paused = rapid.IntRange(0, 3).Draw(w.T, "paused") == 0
	w.next.MaxInFlight = rapid.IntRange(1, 8).Draw(w.T, "max in flight")
}

func (w *world) refreshIf() {
	if w.changed {
		w.refresh()
	}
}

// takeAll acknowledges what it takes.
func (w *world) takeAll() {
	for more := true; more; {
		w.takeSome(9)
		list := w.underWay()
		for _, e := range list {
			if !w.window.Ack(place(e)) {
				w.Fatalf("the acknowledgement of %v was not taken", place(e))
			}
			w.acknowledged(e)
		}
		more = len(list) > 0
	}
}

// drain acknowledges all there is. Then nothing is left, neither in memory nor in the store.
func (w *world) drain() {
	w.faults = false
	w.most = max(w.most, 200)
	for rounds := 0; len(w.unsettled())+w.letters() > 0 || w.window.ReadTo() < w.end; rounds++ {
		if rounds > 10*(len(w.log)+int(w.end)+10) {
			w.Fatalf("BUS-6: never delivered: %v, with %d dead letters; %+v", w.unsettled(), w.letters(), w.window.Stats())
		}
		w.now = max(w.now, w.window.Next())
		w.handleTime()
		if w.window.Wants() && w.window.ReadTo() < w.end {
			w.pushTo(w.window.ReadTo() + 1)
		}
		w.takeAll()
		w.settle()
		w.answer()
		if rounds%10 == 9 { // Letters hold runs, and a pause all of them.
			for p := range w.store.letters {
				w.store.letters[p] = true
			}
			w.next.Paused = false
			w.refresh()
		}
		w.check()
	}
	w.next.Paused = false
	w.refresh()
	for rounds := 0; rounds < 3 || w.window.Unsettled() && rounds < 1000; rounds++ {
		w.takeAll() // What is repeated, and a run that may have had more in the store.
		w.settle()
		w.answer()
	}
	st := w.window.Stats()
	if st != (window.Stats{}) || w.settings.Memory.Used() != 0 || w.window.Lanes() != 0 {
		w.Fatalf("in the end: %+v, %d bytes, %d runs", st, w.settings.Memory.Used(), w.window.Lanes())
	}
	if len(w.store.owed)+len(w.store.letters) > 0 || w.store.position != w.end || w.window.Unsettled() {
		w.Fatalf("in the end: %+v; the log ends at %d; unsettled: %t", w.store, w.end, w.window.Unsettled())
	}
}
