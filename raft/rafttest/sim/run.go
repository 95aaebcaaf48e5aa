package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft/rafttest/history"
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
	// askedAgain is how many windows each node is asked for again in the end.
	askedAgain = 10
)

// Run lets a world live its plan, heals it, and checks what its clients saw. It must be called in a bubble of fake time,
// which it leaves as empty as it found it.
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
	var err error
	if w.operator, err = w.newCaller("operator"); err != nil {
		return err
	}
	defer w.operator.close()
	working, stop := context.WithCancel(context.Background())
	defer stop()
	w.working = working
	done, err := w.hire(working)
	if err != nil {
		return err
	}
	w.play()
	if w.plan == nil {
		time.Sleep(w.opts.Length)
	}
	w.log.Info("healed")
	w.progress()
	stop()
	done.Wait()
	time.Sleep(settleTime)
	finals, err := w.finals()
	if err != nil {
		return err
	}
	h := w.recorder.History()
	r.Report = history.Check(h, fold, finals...)
	if !w.opts.Cross {
		return nil
	}
	if err := history.CrossCheck(h, finals...); err != nil {
		return fmt.Errorf("the cross-check: %w", err) // also where it cannot tell
	}
	r.Report.Counts["worlds checked by porcupine"] = 1
	return nil
}

// hire puts the clients to work.
func (w *world) hire(ctx context.Context) (*sync.WaitGroup, error) {
	var all sync.WaitGroup
	for i := range w.opts.Clients {
		c, err := w.newWorker(clientHost(i), uint64(1000+i))
		if err != nil {
			return nil, err
		}
		watcher, err := w.newWorker(clientHost(i), uint64(2000+i))
		if err != nil {
			return nil, err
		}
		watch := watcher.watchRun
		if i%2 == 1 {
			watch = watcher.watchRuns
		}
		all.Go(func() { defer c.close(); c.work(ctx) })
		all.Go(func() { defer watcher.close(); watch(ctx) })
	}
	all.Go(func() { w.sample(ctx) })
	return &all, nil
}

// sample notes how far the nodes are, with their rolling hashes.
func (w *world) sample(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, sampleEvery) {
		for _, n := range w.nodes {
			w.seeHash(n)
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
	began := time.Now()
	for _, n := range w.nodes {
		n.powerOn()
	}
	c, err := w.newWorker("prober", 1)
	if err != nil {
		w.fault("%v", err)
		return
	}
	defer c.close()
	for node := 0; time.Since(began) < healPatience; node = (node + 1) % len(w.nodes) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		req := &runlogv1.AppendEventsRequest{RunId: "probe", Events: []*runlogv1.EventWrite{w.newEvent("probe", c.rng)}}
		op, ticket := c.call(node, history.Op{Appends: []history.Append{{Run: "probe", Events: []history.Event{asSent(req.GetEvents()[0])}}}})
		resp, err := c.events(node).AppendEvents(ctx, req)
		c.answered(&op.Appends[0], resp.GetResults(), resp.GetLastSeq(), err)
		c.world.recorder.Return(ticket, op)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.fault("no write succeeds within %s after everything is mended", healPatience)
}

// finals waits until all nodes have everything and asks each what it has.
func (w *world) finals() ([]*history.Final, error) {
	if err := w.whole(); err != nil {
		w.fault("the cluster is not whole again: %v", err) // what the others have tells what it costs
	}
	ctx, cancel := context.WithTimeout(context.Background(), formPatience)
	defer cancel()
	ends := map[string]uint64{}
	for run := range w.sent.events {
		last, err := w.lastSeq(ctx, run)
		if err != nil {
			return nil, fmt.Errorf("the end of run %s: %w", run, err)
		}
		if last > 0 {
			ends[run] = last
		}
	}
	var all []*history.Final
	for i, n := range w.nodes {
		if n.serving() == nil {
			continue
		}
		f, err := w.final(ctx, i, ends)
		if err != nil {
			w.fault("what %s has: %v", n.host, err)
			continue
		}
		all = append(all, f)
	}
	return all, nil
}

// whole waits until all nodes are ready.
func (w *world) whole() error {
	ctx, cancel := context.WithTimeout(context.Background(), formPatience)
	defer cancel()
	return w.ready(ctx)
}

// lastSeq asks for the end of a run until it is told; 0: there is no such run.
func (w *world) lastSeq(ctx context.Context, run string) (uint64, error) {
	for node := 0; ; node = (node + 1) % len(w.nodes) {
		resp, err := w.operator.events(node).ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: run, PageSize: 1})
		if err == nil {
			return resp.GetLastSeq(), nil
		}
		if status.Code(err) == codes.NotFound {
			return 0, nil
		}
		if ctx.Err() != nil {
			return 0, errors.Join(err, ctx.Err())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// final is what a node has, once it has applied and folded all runs to their ends.
func (w *world) final(ctx context.Context, node int, ends map[string]uint64) (*history.Final, error) {
	f := &history.Final{Node: w.nodes[node].host}
	for run, last := range ends {
		resp, err := w.operator.projections(node).GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{
			RunId: run, MinSeq: last, Consistency: runlogv1.Consistency_LOCAL,
		})
		if err != nil {
			w.fault("snapshot of %s on %s: %v", run, f.Node, err) // what it has instead is worth a look
			continue
		}
		s := history.Snapshot{Run: run, Local: true, MinSeq: last}
		if err := seenSnapshot(&s, resp.GetSnapshot()); err != nil {
			return nil, err
		}
		f.Snapshots = append(f.Snapshots, s)
		verified, err := w.operator.audits(node).VerifyRun(ctx, &runlogv1.VerifyRunRequest{RunId: run})
		if err != nil || !verified.GetOk() {
			w.fault("verification of %s on %s: %v: %s", run, f.Node, err, verified.GetProblem())
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), formPatience)
	defer cancel()
	if err := w.export(ctx, node, f); err != nil {
		return nil, err
	}
	w.seeHash(w.nodes[node])
	f.Hashes = w.hashes[f.Node]
	return f, w.askAgain(ctx, node)
}

// export reads everything that a node has, in commit order.
func (w *world) export(ctx context.Context, node int, f *history.Final) error {
	s, err := w.operator.audits(node).ExportEvents(ctx, &runlogv1.ExportEventsRequest{To: timestamppb.New(time.Now().Add(time.Hour))})
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	for {
		resp, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		for _, e := range resp.GetEvents() {
			r, err := recordOf(e)
			if err != nil {
				return err
			}
			f.Records = append(f.Records, r)
		}
	}
}

// askAgain asks a node for windows that were closed before.
func (w *world) askAgain(ctx context.Context, node int) error {
	c, err := w.newWorker("auditor", uint64(node))
	if err != nil {
		return err
	}
	defer c.close()
	for range min(len(w.windows), askedAgain) {
		a, _ := w.askedBefore(c.rng)
		c.ask(ctx, node, a, &history.Window{}, 1000)
	}
	return nil
}
