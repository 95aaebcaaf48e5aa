package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"runlog/server/servertest/history"
)

// Result is what a run of a world came to.
type Result struct {
	Plan []Fault
	// Happened counts the faults that happened, by kind: power losses by node.
	Happened map[Kind]int
	// Seen counts what the nodes did of their own accord, by kind.
	Seen map[string]int
	// Broken is what must not happen and needs no history to be seen.
	Broken []string
	// Report is nil where the world did not come to its end.
	Report *history.Report
	// Fake is how long it took in the world.
	Fake time.Duration
}

// OK tells whether everything holds.
func (r *Result) OK() bool { return len(r.Broken) == 0 && r.Report != nil && r.Report.OK() }

// Invariants are those that do not hold, by name, without repetition.
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

// String tells what does not hold, and the plan under which it did not.
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
	// formPatience is how long a new cluster may take to form, and a healed one to be whole again.
	formPatience = 2 * time.Minute
	// healPatience is how long after the last fault writes must succeed again (I10).
	healPatience = 10 * time.Second
	// settleTime is enough for what clients have given up to be stored, or not.
	settleTime  = 10 * time.Second
	sampleEvery = 200 * time.Millisecond
	// finalPatience is how long all nodes together may take to tell what they have.
	finalPatience = 10 * time.Minute
)

// Run lets a world live its plan, heals it, and checks what its clients saw. It must be called in a
// bubble of fake time, which it leaves as empty as it found it.
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
		return fmt.Errorf("the cluster does not form: %w", err)
	}
	working, stop := context.WithCancel(context.Background())
	defer stop()
	wait, err := w.clients.Hire(working, w.opts.Clients)
	if err != nil {
		return err
	}
	var sampling sync.WaitGroup
	sampling.Go(func() { w.sample(working) })
	w.play()
	if w.plan == nil {
		time.Sleep(w.opts.Length)
	}
	close(w.healed)
	w.log.Info("healed")
	w.progress()
	stop()
	wait()
	sampling.Wait()
	time.Sleep(settleTime)
	finals := w.finals()
	if len(finals) == 0 {
		return errors.New("no node tells what it has")
	}
	r.Report = w.clients.Check(finals)
	if !w.opts.Cross {
		return nil
	}
	if err := history.CrossCheck(w.clients.History(), finals...); err != nil {
		return fmt.Errorf("the cross-check: %w", err) // also where it cannot tell
	}
	r.Report.Counts["worlds checked by porcupine"] = 1
	return nil
}

// sample notes how far the nodes are, with their rolling hashes.
func (w *world) sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, n := range w.nodes {
			w.seeHash(n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (w *world) seeHash(n *node) {
	s := n.serving()
	if s == nil {
		return
	}
	a := s.Applied()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hashes[n.host] = append(w.hashes[n.host], history.AppliedHash{Index: a.Index, Hash: history.Digest(a.RollingHash)})
}

// progress demands that writes succeed soon after everything is mended (I10).
func (w *world) progress() {
	ctx, cancel := context.WithTimeout(context.Background(), healPatience)
	defer cancel()
	for _, n := range w.nodes {
		n.powerOn()
	}
	if err := w.clients.Probe(ctx); err != nil {
		w.fault("no write succeeds within %s after everything is mended: %v", healPatience, err)
	}
}

// finals waits until all nodes have everything and asks each what it has.
func (w *world) finals() []*history.Final {
	if err := w.whole(); err != nil {
		// what the others have tells what it costs
		w.fault("the cluster is not whole again: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), finalPatience)
	defer cancel()
	finals, err := w.clients.Finals(ctx)
	if err != nil {
		w.fault("%v", err) // what was told is worth a look all the same
	}
	for _, n := range w.nodes {
		w.seeHash(n)
	}
	for _, f := range finals {
		f.Hashes = w.hashes[f.Node]
	}
	return finals
}

// whole waits until all nodes are ready.
func (w *world) whole() error {
	ctx, cancel := context.WithTimeout(context.Background(), formPatience)
	defer cancel()
	return w.ready(ctx)
}
