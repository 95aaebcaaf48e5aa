package window_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// event is one of the log, and what has become of it.
type event struct {
	*window.Event
	matches bool

	settled  bool // acknowledged, or its letter was discarded
	repeats  bool // settled, but perhaps not as far as the store knows
	tick     int  // of the world, when it was acknowledged or parked
	letter   *letter
	under    bool // under way
	deadline int64
	earliest int64 // of the next attempt
	waits    bool  // for it
	failed   uint32
	failedAt []int // the ticks at which attempts failed that are no letter's
	loose    bool  // after a crash, failed is the most that may be known
}

// letter is a dead letter, as the window knows it.
type letter struct {
	recorded bool // the store has it
	again    bool // it was parked again, and the store does not know
	redriven bool
	failed   uint32 // since then
}

// rows are what the state machine keeps of a subscription.
type rows struct {
	position storage.Position
	owed     map[string]window.Owed
	letters  map[window.Place]bool // true: redriven
	acked    uint64
}

// settle has the effect of a settlement (storage/machine/subscription).
func (r *rows) settle(s *window.Settlement) {
	for _, id := range s.Paid {
		delete(r.owed, id)
	}
	for _, o := range s.Owed {
		r.owed[o.RunID] = o
	}
	for _, p := range s.Delivered {
		if r.letters[p] {
			delete(r.letters, p)
		}
	}
	for _, p := range s.Parked {
		r.letters[p.Place] = false
	}
	r.position = s.Position
	r.acked += s.Acknowledged
}

// world is a log, the rows in the store, and a window between them.
type world struct {
	*rapid.T
	runs map[string][]*event
	log  []*event
	end  storage.Position
	now  int64

	store    rows
	window   *window.Window
	settings window.Settings
	most     int                // bytes of a settlement
	pending  *window.Settlement // on its way to the store
	// changed: the store has changed otherwise, and the window does not know. next are the settings
	// of which it learns then.
	changed bool
	next    window.Settings
	// tick counts the settlements that were made. recorded are the ticks at which the last two were
	// made that the store has recorded, and madeAt is that of pending.
	tick     int
	recorded [2]int
	madeAt   int

	many     int             // runs
	failures int             // attempts that have failed since the last acknowledgement
	ahead    map[string]bool // runs whose next event may come as one that has failed does
	probe    *event          // under way, while the sink counts as down
	probes   int             // that have failed since the last acknowledgement
	probeAt  int64           // when the next one may come

	faults bool // reads fail
	seen   []window.Place
	draws  *rapid.Generator[int]
}

var errRead = errors.New("the disk is slow")

func newWorld(t *rapid.T) *world {
	w := &world{T: t, runs: map[string][]*event{}, now: 1, recorded: [2]int{-1, -1}, draws: rapid.IntRange(0, 9)}
	w.many = rapid.SampledFrom([]int{5, 5, 5, 60}).Draw(t, "runs")
	w.store = rows{owed: map[string]window.Owed{}, letters: map[window.Place]bool{}}
	w.settings = window.Settings{
		Memory:      &window.Memory{One: rapid.SampledFrom([]int64{1, 5000, 1 << 20}).Draw(t, "one"), All: 1 << 20},
		MaxLanes:    rapid.IntRange(1, max(8, w.many)).Draw(t, "max lanes"),
		MaxInFlight: rapid.IntRange(1, max(8, w.many/3)).Draw(t, "max in flight"), MaxAttempts: uint32(rapid.IntRange(1, 4).Draw(t, "max attempts")),
		RetryInitial: 2, RetryMax: 20, MaxLetters: uint64(rapid.IntRange(1, 6).Draw(t, "max letters")),
		HoldRun: rapid.Bool().Draw(t, "hold run"), AckTimeout: rapid.SampledFrom([]time.Duration{0, 15}).Draw(t, "ack timeout"),
		RandomBackoff: func(most time.Duration) time.Duration {
			if most > 20 {
				t.Fatalf("a delay of up to %d", most)
			}
			return most
		},
	}
	if w.settings.AckTimeout > 0 {
		w.settings.MaxLetters = 1000 // Several deadlines at a time have no order.
	}
	w.most = rapid.SampledFrom([]int{1, 100, 300, 1 << 20}).Draw(t, "bytes of a settlement")
	w.next = w.settings
	w.open()
	return w
}

// Load implements window.Source.
func (w *world) Load(runID string, after uint64, through storage.Position, n int) (list []*window.Event, more bool, err error) {
	if w.faults && w.draws.Draw(w.T, "read") == 0 {
		return nil, false, errRead
	}
	if cut := w.draws.Draw(w.T, "page"); cut > 0 {
		n = min(n, cut)
	}
	for _, e := range w.runs[runID] {
		if !e.matches || e.Record.RunSeq <= after || e.Record.Position > through {
			continue
		}
		if len(list) == n {
			return list, true, nil
		}
		list = append(list, e.Event)
	}
	return list, len(list) > 0 && w.draws.Draw(w.T, "more") == 0, nil
}

// Letter implements window.Source.
func (w *world) Letter(runID string, seq uint64) (*window.Event, error) {
	if w.faults && w.draws.Draw(w.T, "read of a letter") == 0 {
		return nil, errRead
	}
	return w.runs[runID][seq-1].Event, nil
}

// open makes a window from the rows in the store.
func (w *world) open() {
	w.window = window.New(w.settings, w, w.store.position)
	w.ahead = map[string]bool{}
	w.trust()
	for _, id := range slices.Sorted(maps.Keys(w.store.owed)) {
		o := w.store.owed[id]
		w.window.Owe(id, o.NextSeq, o.Attempts)
	}
	w.tellLetters()
}

// tellLetters tells the window of the dead letters in the store as a dispatcher does.
func (w *world) tellLetters() {
	runs := map[string]window.RunLetters{}
	for p, redriven := range w.store.letters {
		if !redriven && !w.settings.HoldRun {
			continue
		}
		r := runs[p.RunID]
		r.Count++
		if redriven {
			r.Redriven = append(r.Redriven, p.Seq)
			slices.Sort(r.Redriven)
		}
		runs[p.RunID] = r
	}
	w.window.Letters(uint64(len(w.store.letters)), runs)
}

func (w *world) at(p window.Place) *event { return w.runs[p.RunID][p.Seq-1] }

func place(e *event) window.Place { return window.Place{RunID: e.Record.RunID, Seq: e.Record.RunSeq} }

func (w *world) underWay() (list []*event) {
	for _, e := range w.log {
		if e.under {
			list = append(list, e)
		}
	}
	return list
}

func (w *world) letters() (n int) {
	for _, e := range w.log {
		if e.letter != nil {
			n++
		}
	}
	return n
}

// handed checks an event that is handed out, and notes it.
func (w *world) handed(d *window.Delivery) {
	p := window.Place{RunID: d.Run.RunID, Seq: d.Record.RunSeq}
	e := w.at(p)
	if !e.matches {
		w.Fatalf("%v does not match", p)
	}
	if w.now < e.earliest {
		w.Fatalf("%v is handed out at %d, before %d", p, w.now, e.earliest)
	}
	for _, other := range w.runs[p.RunID] {
		if other.under {
			w.Fatalf("BUS-3: %v is handed out while %v is under way", p, place(other))
		}
	}
	known := &e.failed
	if e.letter != nil {
		if !e.letter.redriven {
			w.Fatalf("BUS-4: the dead letter %v is handed out", p)
		}
		known = &e.letter.failed
	} else {
		w.inOrder(e, w.settings.HoldRun)
	}
	if d.Attempt == 1 && w.down() && !w.ahead[p.RunID] && !w.behindFailed(e) {
		if w.probe != nil || w.now < w.probeAt {
			w.Fatalf("BUS-9: %v is tried at %d, after %d failures: %v is a probe, the next one comes at %d", p, w.now, w.failures, w.probe, w.probeAt)
		}
		w.probe = e
	}
	delete(w.ahead, p.RunID)
	if d.Attempt != *known+1 && (!e.loose || d.Attempt == 0 || d.Attempt > *known+1) {
		w.Fatalf("%v is attempt %d, after %d that have failed", p, d.Attempt, *known)
	}
	*known, e.loose, e.under, e.deadline = d.Attempt-1, false, true, 0
	e.failedAt = e.failedAt[:min(len(e.failedAt), int(e.failed))]
	if w.settings.AckTimeout > 0 {
		e.deadline = w.now + int64(w.settings.AckTimeout)
	}
	w.seen = append(w.seen, p)
}

// inOrder checks that an event may come now, which is no dead letter.
func (w *world) inOrder(e *event, hold bool) {
	p := place(e)
	if e.settled && !e.repeats {
		w.Fatalf("BUS-6: %v comes again, which was settled", p)
	}
	e.settled, e.repeats = false, false
	for _, before := range w.runs[p.RunID][:p.Seq-1] {
		switch {
		case !before.matches:
		case before.letter != nil && hold:
			w.Fatalf("BUS-4: %v comes behind the dead letter %v", p, place(before))
		case before.letter == nil && !before.settled:
			w.Fatalf("BUS-3: %v comes before %v", p, place(before))
		}
		before.repeats = false // It would come too late.
	}
}

// down reports whether a sink counts as down: no event is tried for the first time.
func (w *world) down() bool {
	most, tried := max(w.settings.MaxInFlight, 16), len(w.underWay())
	for _, e := range w.log {
		if e.waits {
			tried++
		}
	}
	return w.settings.AckTimeout == 0 && w.failures >= most && tried >= most
}

// trust notes that the sink does not count as down.
func (w *world) trust() { w.failures, w.probe, w.probes, w.probeAt = 0, nil, 0, 0 }

// ends notes that an event is no longer under way, if it was.
func (w *world) ends(e *event) {
	if e.under = false; w.probe == e {
		w.probe = nil
	}
}

// behindFailed reports whether an event is a dead letter of a run whose first event has failed: it
// takes that event's turn.
func (w *world) behindFailed(e *event) bool {
	return e.letter != nil && slices.ContainsFunc(w.runs[e.Record.RunID], func(other *event) bool { return other.failed > 0 && !other.settled })
}

// acknowledged notes an acknowledgement that the window has taken.
func (w *world) acknowledged(e *event) {
	switch {
	case e.letter != nil && !e.letter.redriven:
		w.Fatalf("the acknowledgement of the dead letter %v was taken", place(e))
	case e.letter == nil && !e.under:
		w.inOrder(e, false)
	}
	if !e.under && !e.waits {
		w.ahead[e.Record.RunID] = true
	}
	e.settled, e.repeats, e.letter, e.under, e.waits, e.earliest, e.tick = true, false, nil, false, false, 0, w.tick
	w.trust()
}

// attemptFailed notes that an attempt has failed. The next one comes after a time.
func (w *world) attemptFailed(e *event, permanent bool, after time.Duration) {
	if w.probe == e {
		w.probeAt = w.now + int64(min(w.settings.RetryMax, w.settings.RetryInitial<<min(w.probes, 10)))
		w.probes++
	}
	w.ends(e)
	e.waits = true
	w.failures++
	failed := &e.failed
	if e.letter != nil {
		failed = &e.letter.failed
	} else {
		e.failedAt = append(e.failedAt, w.tick)
	}
	*failed++
	if after < 0 {
		after = min(w.settings.RetryMax, w.settings.RetryInitial<<min(*failed-1, 10))
	}
	e.earliest = w.now + int64(after)
	if !permanent && *failed < w.settings.MaxAttempts {
		return
	}
	switch {
	case e.letter != nil:
		e.letter = &letter{recorded: true, again: true}
	case w.letters() < int(w.settings.MaxLetters):
		e.letter = &letter{}
	default:
		return
	}
	e.earliest, e.waits, e.tick = 0, false, w.tick
}

// record has the store record the pending settlement, and tells whether it has.
func (w *world) record() bool {
	s := w.pending
	w.pending = nil
	if w.changed {
		return false
	}
	if s.Position < w.store.position || s.Position > w.end {
		w.Fatalf("the cursor goes from %d to %d of %d", w.store.position, s.Position, w.end)
	}
	w.store.settle(s)
	if !s.Part {
		w.recorded = [2]int{w.recorded[1], w.madeAt}
	}
	for _, p := range s.Parked {
		if l := w.at(p.Place).letter; l != nil {
			l.recorded, l.again = true, false
		}
	}
	return true
}

// refresh tells the window what has changed in the store.
func (w *world) refresh() {
	w.pending, w.changed, w.settings = nil, false, w.next
	w.trust()
	for _, e := range w.log {
		l := e.letter
		if l == nil || !l.recorded {
			continue
		}
		redriven, is := w.store.letters[place(e)]
		switch {
		case !is:
			e.letter, e.settled, e.repeats, e.under, e.waits, e.earliest, e.tick = nil, true, false, false, false, 0, -1
		case redriven && !l.redriven && !l.again:
			l.redriven, l.failed, e.earliest = true, 0, 0
		}
	}
	w.window.Set(w.settings)
	w.tellLetters()
}

// crash begins with what the store has.
func (w *world) crash() {
	w.window.Close()
	if used := w.settings.Memory.Used(); used != 0 {
		w.Fatalf("%d bytes in use without a window", used)
	}
	w.pending, w.changed, w.settings = nil, false, w.next
	for _, e := range w.log {
		p := place(e)
		w.attemptsKept(e)
		if l := e.letter; l != nil && (!l.recorded && e.tick <= w.recorded[0] || l.again && e.tick <= w.recorded[1]) {
			w.Fatalf("%v was parked at %d, and not recorded at %v", p, e.tick, w.recorded)
		}
		redriven, letters := w.store.letters[p]
		switch {
		case letters:
			if e.settled && e.tick <= w.recorded[1] || !redriven && (e.settled || e.letter == nil) {
				w.Fatalf("BUS-6: %v was settled, and is a dead letter (redriven: %t)", p, redriven)
			}
			e.letter, e.settled = &letter{recorded: true, redriven: redriven}, false
		case e.letter != nil && e.letter.recorded:
			e.letter, e.settled, e.repeats, e.tick = nil, true, false, -1 // It was discarded.
		case e.letter != nil:
			e.letter = nil
		case e.settled:
			e.repeats = e.repeats || e.tick > w.recorded[0]
		}
		e.under, e.loose, e.waits, e.earliest = false, true, false, 0
	}
	w.open()
}

// attemptsKept checks that the store knows of the attempts that failed before the settlement before
// the last one. The others are forgotten.
func (w *world) attemptsKept(e *event) {
	o := w.store.owed[e.Record.RunID]
	if o.NextSeq != e.Record.RunSeq || e.settled || e.letter != nil {
		e.failedAt = nil
		return
	}
	n := 0
	for n < len(e.failedAt) && e.failedAt[n] <= w.recorded[0] {
		n++
	}
	if int(o.Attempts) < n {
		w.Fatalf("BUS-4: %+v in the store; %v had failed %d times", o, place(e), n)
	}
	e.failedAt = e.failedAt[:min(len(e.failedAt), int(o.Attempts))]
}

// check compares the window with what must be.
func (w *world) check() {
	st := w.window.Stats()
	if got, want := st.InFlight, len(w.underWay()); got != want {
		w.Fatalf("%d are under way; want %d", got, want)
	}
	waits := 0
	for _, e := range w.log {
		if e.waits {
			waits++
		}
	}
	if st.Retrying != waits {
		w.Fatalf("%d wait for another attempt; want %d", st.Retrying, waits)
	}
	if got, want := st.Letters, uint64(w.letters()); got != want {
		w.Fatalf("%d dead letters; want %d", got, want)
	}
	if st.Waiting < st.InFlight || st.Waiting == 0 && w.settings.Memory.Used() != 0 {
		w.Fatalf("%+v, %d bytes", st, w.settings.Memory.Used())
	}
}

// unsettled are the events that must still be delivered.
func (w *world) unsettled() (list []string) {
	for _, e := range w.log {
		if e.matches && !e.settled && e.letter == nil {
			list = append(list, fmt.Sprint(place(e)))
		}
	}
	return list
}
