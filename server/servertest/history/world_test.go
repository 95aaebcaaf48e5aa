package history

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
)

// shape says what kind of history is wanted.
type shape struct {
	seed                uint64
	runs, clients, ops  int
	unknown, duplicates float64 // shares
}

// world is an append authority without faults, and what concurrent clients saw of it: each op takes
// effect at one moment between its call and its return, or at any later one if no answer came.
type world struct {
	*rand.Rand
	shape
	plans  []*plan
	log    []Record
	runs   map[string]*worldRun
	stamp  int64
	index  uint64
	joined bool // the next append may still go into the proposal at index
	hash   Digest
	hashes []AppliedHash
	leaves []tlog.Hash
	ids    int
	told   map[eventKey]uint64 // watermarks by subscriber and run

	history *History
	finals  []*Final
}

type worldRun struct {
	records []Record
	ends    []uint64 // where appends ended: what a local reader may see
	chain   Digest
	byKey   map[string]int
}

// plan is an op with the moment of its effect.
type plan struct {
	op     Op
	effect int64
	never  bool // the effect does not come
}

// build makes up a history. It is the same for the same shape.
func build(s shape) *world {
	w := &world{
		Rand: rand.New(rand.NewPCG(s.seed, 7)), shape: s, runs: map[string]*worldRun{}, stamp: 1_000, index: 10, told: map[eventKey]uint64{},
	}
	for i := range s.runs {
		w.runs[fmt.Sprintf("run-%d", i)] = &worldRun{ends: []uint64{0}, byKey: map[string]int{}}
	}
	clocks := make([]int64, s.clients)
	for range s.ops {
		client := w.IntN(s.clients)
		call := clocks[client] + w.Int64N(20)
		effect := call + w.Int64N(60)
		p := &plan{op: w.ask(), effect: effect}
		p.op.Client, p.op.Node, p.op.Call, p.op.Return = fmt.Sprintf("client-%d", client), fmt.Sprintf("n%d", w.IntN(3)), call, effect+w.Int64N(60)
		if p.op.Mark != nil {
			p.op.Client, p.op.Return, p.effect = fmt.Sprintf("watcher-%d", w.IntN(2)), call, call
		}
		clocks[client] = p.op.Return
		if len(p.op.Appends) > 0 && w.Float64() < s.unknown {
			p.op.Return = 0
			p.never = w.IntN(2) == 0
			p.effect += w.Int64N(500)
		}
		w.plans = append(w.plans, p)
	}
	byEffect := slices.Clone(w.plans)
	slices.SortStableFunc(byEffect, func(a, b *plan) int { return cmp.Compare(a.effect, b.effect) })
	for _, p := range byEffect {
		w.happen(p)
	}
	slices.SortStableFunc(w.plans, func(a, b *plan) int { return cmp.Compare(a.op.Call, b.op.Call) })
	w.history = &History{}
	for _, p := range w.plans {
		w.history.Ops = append(w.history.Ops, p.op)
	}
	for n := range 3 {
		w.finals = append(w.finals, w.final(fmt.Sprintf("n%d", n)))
	}
	return w
}

func (w *world) someRun() string { return fmt.Sprintf("run-%d", w.IntN(w.shape.runs)) }

// ask draws what a client asks for.
func (w *world) ask() Op {
	run := w.someRun()
	switch n := w.IntN(20); {
	case n < 10:
		op := Op{Appends: []Append{w.askAppend(run)}}
		if w.IntN(6) == 0 {
			op.Appends = append(op.Appends, w.askAppend(w.someRun()))
		}
		return op
	case n < 14:
		return Op{Read: &Read{Run: run, Local: w.IntN(3) == 0}}
	case n < 16:
		return Op{Snapshot: &Snapshot{Run: run, Local: w.IntN(2) == 0}}
	case n < 18:
		return Op{Mark: &Mark{Run: run}}
	default:
		f := Filter{}
		switch w.IntN(4) {
		case 0:
			f.TenantID = "t1"
		case 1:
			f.RunID = run
		case 2:
			f.Types = []string{"A", "B"}
		}
		return Op{Window: &Window{Filter: f}}
	}
}

// askAppend draws new events, or ones that any client sent before, with any outcome.
func (w *world) askAppend(run string) Append {
	if len(w.plans) > 0 && w.Float64() < w.duplicates {
		if old := w.plans[w.IntN(len(w.plans))]; len(old.op.Appends) > 0 {
			a := old.op.Appends[0]
			again := Append{Run: a.Run, Events: slices.Clone(a.Events)}
			if w.IntN(3) == 0 {
				again.Events[0].Content = digestOf("other", w.ids)
				again.Events[0].EventID = w.id()
			}
			return again
		}
	}
	a := Append{Run: run}
	for range 1 + w.IntN(3) {
		e := Event{Key: "key of " + w.id(), Content: digestOf("content", w.ids)}
		if w.IntN(4) > 0 {
			e.EventID = w.id()
		}
		a.Events = append(a.Events, e)
	}
	if w.IntN(10) == 0 {
		a.Events = append(a.Events, a.Events[0]) // IDM-8
	}
	if w.IntN(4) == 0 {
		a.Expected = new(uint64) // happen puts a number there.
	}
	return a
}

func (w *world) id() string {
	w.ids++
	return fmt.Sprintf("id-%d", w.ids)
}

func digestOf(parts ...any) Digest { return sha256.Sum256([]byte(fmt.Sprint(parts...))) }

// happen lets an op have its effect, and fills in its answer.
func (w *world) happen(p *plan) {
	op := &p.op
	if len(op.Appends) == 0 {
		w.joined = false
	}
	if failed := op.outcome(); failed != nil && w.IntN(12) == 0 {
		*failed = Failed([]contract.Reason{contract.ReasonNoLeader, contract.ReasonOutcomeUnknown}[w.IntN(2)])
		return
	}
	switch {
	case op.Read != nil:
		w.read(op.Read)
	case op.Snapshot != nil:
		w.snapshot(op.Snapshot)
	case op.Mark != nil:
		who := eventKey{op.Client, op.Mark.Run}
		low := w.told[who]
		op.Mark.LastEventSeq = low + w.Uint64N(uint64(len(w.runs[op.Mark.Run].records))-low+1)
		w.told[who] = op.Mark.LastEventSeq
	case op.Window != nil:
		w.window(op.Window)
	}
	for i := range op.Appends {
		a := &op.Appends[i]
		if a.Expected != nil {
			*a.Expected = uint64(len(w.runs[a.Run].records))
			if w.IntN(2) == 0 {
				*a.Expected = w.Uint64N(*a.Expected + 2)
			}
		}
		switch {
		case p.never:
		case w.IntN(15) == 0 && op.Return != 0:
			a.Outcome = Failed(contract.ReasonOverloaded)
		default:
			w.append(a)
		}
		if op.Return == 0 {
			a.Outcome, a.LastSeq, a.Results = Failed(contract.ReasonOutcomeUnknown), 0, nil
		}
	}
}

// outcome returns that of a read of any kind.
func (o *Op) outcome() *Outcome {
	switch {
	case o.Read != nil:
		return &o.Read.Outcome
	case o.Snapshot != nil:
		return &o.Snapshot.Outcome
	case o.Window != nil:
		return &o.Window.Outcome
	}
	return nil
}

func (w *world) append(a *Append) {
	r := w.runs[a.Run]
	fresh := map[string]bool{}
	for _, e := range a.Events {
		if _, ok := r.byKey[e.Key]; !ok {
			fresh[e.Key] = true
		}
	}
	a.LastSeq = uint64(len(r.records))
	if len(fresh) > 0 && a.Expected != nil && *a.Expected != a.LastSeq {
		a.Outcome = Failed(contract.ReasonSequenceConflict)
		return
	}
	if len(fresh) > 0 {
		w.propose()
	}
	a.Status = Acknowledged
	a.Resent = w.IntN(10) == 0
	for _, e := range a.Events {
		is := fresh[e.Key]
		if is {
			w.store(r, a.Run, e)
			delete(fresh, e.Key)
		}
		stored := &r.records[r.byKey[e.Key]]
		a.Results = append(a.Results, Result{
			EventID: stored.EventID, RunSeq: stored.RunSeq, PersistedAt: stored.PersistedAt,
			Idempotent: !is || a.Resent, Diverged: stored.Content != e.Content,
		})
	}
	a.LastSeq = uint64(len(r.records))
	r.ends = append(r.ends, a.LastSeq)
}

// propose begins a proposal, or joins the one before, which no client has seen.
func (w *world) propose() {
	if w.joined && w.IntN(2) == 0 {
		return
	}
	w.joined = true
	w.tick()
}

func (w *world) tick() {
	w.index += 1 + w.Uint64N(3)
	w.stamp += 1 + w.Int64N(5)
	w.hash = digestOf(w.hash, w.index)
	w.hashes = append(w.hashes, AppliedHash{w.index, w.hash})
}

func (w *world) store(r *worldRun, run string, e Event) {
	rec := Record{
		Run: run, RunSeq: uint64(len(r.records) + 1), PersistedAt: w.stamp, Position: w.index, EventID: e.EventID, Key: e.Key,
		Content: e.Content, RecordDigest: digestOf(e, w.ids), TenantID: "t" + run[len(run)-1:], PlanID: "p", Absent: contract.AbsentPlan,
		Type: string(rune('A' + w.IntN(4))),
	}
	if rec.EventID == "" {
		rec.EventID = w.id()
	}
	r.chain = Digest(contract.ChainDigest(contract.Digest(r.chain), contract.Digest(rec.RecordDigest), rec.RunSeq, rec.PersistedAt))
	rec.ChainDigest = r.chain
	r.byKey[e.Key] = len(r.records)
	r.records = append(r.records, rec)
	w.log = append(w.log, rec)
	offset := uint32(0)
	for i := len(w.log) - 2; i >= 0 && w.log[i].Position == rec.Position; i-- {
		offset++
	}
	w.leaves = append(w.leaves, tlog.RecordHash(leaf(&rec, offset)))
}

// root works the root of a tree out from its definition (RFC 6962 section 2.1).
func root(leaves []tlog.Hash) tlog.Hash {
	if len(leaves) == 1 {
		return leaves[0]
	}
	split := 1
	for split*2 < len(leaves) {
		split *= 2
	}
	return tlog.NodeHash(root(leaves[:split]), root(leaves[split:]))
}

func (w *world) read(r *Read) {
	records := w.runs[r.Run].records
	if ends := w.runs[r.Run].ends; r.Local {
		records = records[:ends[w.IntN(len(ends))]]
	}
	if len(records) == 0 {
		r.Outcome = Failed(contract.ReasonRunNotFound)
		return
	}
	r.Status, r.LastSeq = Acknowledged, uint64(len(records))
	r.AfterSeq, r.MinSeq = w.Uint64N(r.LastSeq+1), w.Uint64N(r.LastSeq+1)
	shown := records[r.AfterSeq:]
	if len(shown) > 1 && w.IntN(4) == 0 {
		shown, r.More = shown[:1+w.IntN(len(shown)-1)], true
	}
	for i := range shown {
		r.Events = append(r.Events, Seen{shown[i].RunSeq, shown[i].PersistedAt, shown[i].EventID, shown[i].Key})
	}
}

func (w *world) snapshot(s *Snapshot) {
	records := w.runs[s.Run].records
	s.LastEventSeq = uint64(len(records))
	if s.Local && len(records) > 0 {
		s.LastEventSeq = 1 + w.Uint64N(s.LastEventSeq)
	} else if len(records) > 0 && w.IntN(4) == 0 {
		s.AsOfSeq = 1 + w.Uint64N(s.LastEventSeq)
		s.LastEventSeq = s.AsOfSeq
	}
	if s.LastEventSeq == 0 {
		s.Outcome = Failed(contract.ReasonRunNotFound)
		return
	}
	s.Status, s.MinSeq = Acknowledged, w.Uint64N(s.LastEventSeq+1)
	want := foldOne(records[:s.LastEventSeq])
	s.Digest, s.RunStatus = want.Digest, want.Status
}

// window asks a node, which may be behind, for a window that ends in the past or in the future.
func (w *world) window(win *Window) {
	win.From = 1_000 + w.Int64N(w.stamp-1_000+1)
	win.To = win.From + 1 + w.Int64N(min(w.stamp-win.From, 1_000)+20)
	if w.IntN(4) == 0 && win.To > w.stamp {
		w.stamp, w.index = win.To, w.index+1 // as a tick does
	}
	w.answerWindow(win, w.stamp, w.log)
	if w.IntN(3) == 0 && len(w.log) > 0 {
		// As of the end of some proposal.
		last := w.log[w.IntN(len(w.log))].PersistedAt
		w.answerWindow(win, last, w.log[:placeOf(w.log, last+1)])
	}
}

// placeOf returns the place of the first record that is stamped so or later.
func placeOf(log []Record, stamp int64) int {
	n, _ := slices.BinarySearchFunc(log, stamp, func(r Record, at int64) int { return cmp.Compare(r.PersistedAt, at) })
	return n
}

func (w *world) answerWindow(win *Window, stamp int64, log []Record) {
	win.Status = Acknowledged
	win.CompleteThrough = min(win.To, stamp)
	win.Closed = win.To <= win.CompleteThrough
	win.Events, win.Digest = nil, Digest{}
	for i := placeOf(log, win.From); i < len(log) && log[i].PersistedAt < win.To; i++ {
		if r := &log[i]; win.Filter.Match(r) {
			win.Events = append(win.Events, r.EventID)
			win.Digest = windowDigest(win.Digest, r)
		}
	}
	win.Count = uint64(len(win.Events))
}

// foldOne is a stand-in for a reducer.
func foldOne(records []Record) Folded {
	var d Digest
	for i := range records {
		d = digestOf(d, records[i].EventID)
	}
	return Folded{d, fmt.Sprint("status ", len(records)%3)}
}

func foldAll(records []*Record, at []uint64) ([]Folded, error) {
	var d Digest
	var out []Folded
	for i, r := range records {
		d = digestOf(d, r.EventID)
		if len(at) > 0 && at[0] == r.RunSeq {
			out, at = append(out, Folded{d, fmt.Sprint("status ", (i+1)%3)}), at[1:]
		}
	}
	return out, nil
}

// final is what a node has in the end. It shares nothing with the others.
func (w *world) final(node string) *Final {
	f := &Final{Node: node, Records: slices.Clone(w.log)}
	for _, h := range w.hashes {
		if w.IntN(2) == 0 {
			f.Hashes = append(f.Hashes, h)
		}
	}
	for size := range w.leaves {
		if w.IntN(4) == 0 {
			f.Trees = append(f.Trees, TreeRoot{int64(size) + 1, Digest(root(w.leaves[:size+1]))})
		}
	}
	for _, name := range sortedKeys(w.runs) {
		if records := w.runs[name].records; len(records) > 0 {
			want := foldOne(records)
			f.Snapshots = append(f.Snapshots, Snapshot{
				Run: name, Outcome: Outcome{Status: Acknowledged}, LastEventSeq: uint64(len(records)), Digest: want.Digest, RunStatus: want.Status,
			})
		}
	}
	for i := range w.history.Ops {
		if asked := w.history.Ops[i].Window; asked != nil && asked.Status == Acknowledged {
			win := Window{From: asked.From, To: asked.To, Filter: asked.Filter}
			w.answerWindow(&win, w.stamp, w.log)
			f.Windows = append(f.Windows, win)
		}
	}
	return f
}

func (w *world) check() *Report { return Check(w.history, foldAll, w.finals...) }
