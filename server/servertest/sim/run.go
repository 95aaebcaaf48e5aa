package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"runlog/projector/tree"
	"runlog/server"
	"runlog/server/servertest/history"
	"runlog/storage"
)

// Result is the result of a run.
type Result struct {
	Plan []Fault
	// Happened counts the faults that happened, by kind. A loss of power counts once a node.
	Happened map[Kind]int
	// Seen counts events of the nodes themselves, such as Leaders.
	Seen map[string]int
	// Broken lists violations that show without a history.
	Broken []string
	// Report is nil if the run did not reach its end.
	Report *history.Report
	// Fake is the fake time that the run took.
	Fake time.Duration
}

// OK reports whether everything holds.
func (r *Result) OK() bool { return len(r.Broken) == 0 && r.Report != nil && r.Report.OK() }

// Invariants lists the names of the violated invariants, each once.
func (r *Result) Invariants() []string {
	var names []string
	if r.Report != nil {
		for _, v := range r.Report.Violations {
			names = append(names, string(v.Invariant))
		}
	}
	if len(r.Broken) > 0 {
		names = append(names, "broken")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// String shows the plan and the violations.
func (r *Result) String() string {
	var b strings.Builder
	for i, f := range r.Plan {
		fmt.Fprintf(&b, "%3d %s\n", i, f)
	}
	for _, text := range r.Broken {
		fmt.Fprintln(&b, text)
	}
	if r.Report != nil {
		b.WriteString(r.Report.String())
	}
	return b.String()
}

const (
	// formPatience is how long a new cluster may take to form, and all nodes of a healed one to get
	// ready.
	formPatience = 2 * time.Minute
	// healPatience is how long after the last fault a write must succeed (I10).
	healPatience = 10 * time.Second
	// settleTime is enough for calls that clients no longer wait for: they are stored by then, or
	// never will be.
	settleTime  = 10 * time.Second
	sampleEvery = 200 * time.Millisecond
	// finalPatience is how long all nodes together may take to return their records.
	finalPatience = 10 * time.Minute
)

// Run runs a cluster under a plan, ends all faults, and checks what its clients saw. The caller
// must be in a bubble of fake time. Run leaves no goroutine behind in it.
func Run(opts Options) *Result {
	w := newWorld(opts)
	r := &Result{Plan: w.plan}
	if err := w.live(r); err != nil {
		w.fault("%v", err)
	}
	w.end()
	r.Happened, r.Broken, r.Fake = w.happened, w.broken, time.Since(w.began)
	r.Seen = w.seen.counts
	return r
}

func (w *world) live(r *Result) error {
	ctx, cancel := context.WithTimeout(context.Background(), formPatience)
	defer cancel()
	if err := w.form(ctx); err != nil {
		return fmt.Errorf("cannot form the cluster: %w", err)
	}
	working, stop := context.WithCancel(context.Background())
	defer stop()
	wait, err := w.clients.Hire(working, w.opts.Clients)
	if err != nil {
		return err
	}
	left, err := w.guests(working, ctx)
	if err != nil {
		return err
	}
	var sampling sync.WaitGroup
	sampling.Go(func() { w.sample(working) })
	var releasing sync.WaitGroup
	if w.opts.Held {
		releasing.Go(w.release)
	}
	w.play()
	if w.plan == nil {
		time.Sleep(w.opts.Length)
	}
	releasing.Wait()
	close(w.healed)
	w.log.Info("healed")
	w.progress()
	stop()
	wait()
	left()
	w.startsEnd()
	sampling.Wait()
	time.Sleep(settleTime)
	w.busEnds()
	w.cosigner.judge()
	finals := w.finals()
	if len(finals) == 0 {
		return errors.New("cannot check the history: no node returns its records")
	}
	r.Report = w.clients.Check(finals)
	history.CheckRate(w.clients.History(), r.Report)
	if !w.opts.Cross {
		return nil
	}
	if err := history.CrossCheck(w.clients.History(), finals...); err != nil {
		return fmt.Errorf("cross-check: %w", err) // also if the search was stopped
	}
	r.Report.Counts["worlds checked by porcupine"] = 1
	return nil
}

// sample records the nodes' applied indexes, rolling hashes, and trees of records.
func (w *world) sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, n := range w.nodes {
			w.seeHash(n)
			w.seeTree(n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// mostAhead is how far stamps may be ahead of real time: --max-clock-ahead, and what is drawn for
// the other clocks.
const mostAhead = server.DefaultMaxClockAhead + 10*time.Minute

// seeHash also requires that no clock has moved the cluster's time far ahead (APP-5).
func (w *world) seeHash(n *node) {
	s := n.serving()
	if s == nil {
		return
	}
	a := s.Applied()
	if ahead := time.Until(time.Unix(0, a.PersistedAt)); ahead > mostAhead && w.moved.CompareAndSwap(false, true) {
		w.fault("APP-5: %s has applied a stamp that is %s ahead of real time", n.host, ahead)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hashes[n.host] = append(w.hashes[n.host], history.AppliedHash{Index: a.Index, Hash: history.Digest(a.RollingHash)})
}

// seeTree records the tree of records of a node, unless its projections are being rebuilt.
func (w *world) seeTree(n *node) {
	s := n.serving()
	if s == nil {
		return
	}
	size, root, err := s.Internals().Projector.TreeRoot(math.MaxInt64)
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.trees[n.host]
	if err == nil && (len(seen) == 0 || seen[len(seen)-1].Size != size) {
		w.trees[n.host] = append(seen, history.TreeRoot{Size: size, Root: root})
	}
}

// wholeTree requires that the tree of a node has all records that the node has applied (TR-1).
func (w *world) wholeTree(ctx context.Context, n *node) {
	s := n.serving()
	if s == nil {
		return
	}
	a, p := s.Applied(), s.Internals().Projector
	err := p.Wait(ctx, tree.Name, a.Position())
	size, _, err2 := p.TreeRoot(math.MaxInt64)
	if err = errors.Join(err, err2); err != nil {
		w.fault("TR-1: %s has no tree of records: %v", n.host, err)
	} else if now := s.Applied(); size < int64(a.Events) || size > int64(now.Events) {
		w.fault("TR-1: %s has a tree of %d records, of %d to %d that it has applied", n.host, size, a.Events, now.Events)
	}
}

// place fills in the positions of a node's records, which no call tells. A proposal has one stamp
// of its own.
func (w *world) place(n *node, finals []*history.Final) {
	i := slices.IndexFunc(finals, func(f *history.Final) bool { return f.Node == n.host })
	s := n.serving()
	if i < 0 || s == nil {
		return
	}
	positions := map[int64]uint64{}
	for c, err := range s.Internals().Replica.Store().Follow(storage.Facts).Log(0) {
		if err != nil {
			w.fault("cannot read the log of %s: %v", n.host, err)
			return
		}
		positions[c.PersistedAt] = uint64(c.Position)
	}
	for k := range finals[i].Records {
		r := &finals[i].Records[k]
		r.Position = positions[r.PersistedAt]
	}
}

// progress requires that a write succeeds within healPatience after all faults have ended (I10).
func (w *world) progress() {
	ctx, cancel := context.WithTimeout(context.Background(), healPatience)
	defer cancel()
	for _, n := range w.nodes {
		n.powerOn()
	}
	if err := w.clients.Probe(ctx); err != nil {
		w.fault("no write succeeds within %s after all faults have ended: %v", healPatience, err)
	}
}

// startsEnd lets the queue of the starters run empty.
func (w *world) startsEnd() {
	ctx, cancel := context.WithTimeout(context.Background(), formPatience)
	defer cancel()
	if err := w.clients.CheckStarts(ctx); err != nil {
		w.fault("%v", err)
	}
}

// busEnds has everything delivered to the subscribers that is due to them.
func (w *world) busEnds() {
	ctx, cancel := context.WithTimeout(context.Background(), formPatience)
	defer cancel()
	if err := w.clients.DrainBus(ctx); err != nil {
		w.fault("%v", err)
	}
}

// finals waits until all nodes are ready, and reads the records of each.
func (w *world) finals() []*history.Final {
	if err := w.whole(); err != nil {
		// the records of the others show the damage
		w.fault("the cluster is not whole again: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), finalPatience)
	defer cancel()
	finals, err := w.clients.Finals(ctx)
	if err != nil {
		w.fault("%v", err) // the finals that were returned are still checked
	}
	for _, n := range w.nodes {
		w.seeHash(n)
		w.wholeTree(ctx, n)
		w.seeTree(n)
		w.place(n, finals)
	}
	for _, f := range finals {
		f.Hashes, f.Trees = w.hashes[f.Node], w.trees[f.Node]
	}
	return finals
}

// whole waits until all nodes are ready.
func (w *world) whole() error {
	ctx, cancel := context.WithTimeout(context.Background(), formPatience)
	defer cancel()
	return w.ready(ctx)
}
