package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/servertest/history"
)

const (
	// askedAgain is how many closed windows each node is queried for again in the end.
	askedAgain = 10
	// probePatience is the deadline of one append of a probe.
	probePatience = time.Second
	// viewsPatience is how long one node may take to fold and verify all runs. If it takes longer,
	// its records are still checked.
	viewsPatience = time.Minute
)

// Probe appends, to one node after another, until that succeeds or ctx ends (I10).
func (c *Clients) Probe(ctx context.Context) error {
	w, err := c.newGuest("prober")
	if err != nil {
		return err
	}
	defer w.close()
	for node := 0; ; node = (node + 1) % len(w.conns) {
		calling, cancel := context.WithTimeout(ctx, probePatience)
		req := &runlogv1.AppendEventsRequest{RunId: "probe", Events: []*runlogv1.EventWrite{c.newEvent("probe", w.rng)}}
		op, ticket := w.call(node, history.Op{Appends: []history.Append{{Run: "probe", Events: []history.Event{asSent(req.GetEvents()[0])}}}})
		resp, err := w.events(node).AppendEvents(calling, req)
		cancel()
		w.answered(&op.Appends[0], resp.GetResults(), resp.GetLastSeq(), err)
		c.recorder.Return(ticket, op)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("workload: no append succeeds: %w", err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// Finals reads the records and views of every node, after each has applied and folded everything.
// Clients must have stopped, and all nodes must serve. A request whose client stopped waiting long
// ago may still arrive, if the network held it back; Finals then starts again. It returns the
// finals of the nodes that return their records, and an error for those that do not.
func (c *Clients) Finals(ctx context.Context) ([]*history.Final, error) {
	w, err := c.newGuest("auditor")
	if err != nil {
		return nil, err
	}
	defer w.close()
	var all []*history.Final
	ends, err := w.ends(ctx)
	for err == nil {
		// A cluster that was restored may have another key by now, and one whose data directory was
		// exchanged another history.
		all, c.firstKey, c.kept = nil, "", nil
		var missing []error
		for i := range c.opts.Nodes {
			f, err := w.final(ctx, i, ends)
			if err != nil {
				missing = append(missing, fmt.Errorf("workload: what %s has: %w", c.opts.Nodes[i], err))
			}
			if f != nil {
				all = append(all, f)
			}
		}
		trimAccessLog(all)
		if missing != nil {
			return all, errors.Join(missing...)
		}
		before := ends
		if ends, err = w.ends(ctx); err == nil && maps.Equal(before, ends) {
			return all, nil
		}
	}
	return all, err
}

// trimAccessLog leaves out what not every node had of the access log when it was read. A read of
// all records is an event of it (SEC-11), so a node that is read later has more.
func trimAccessLog(all []*history.Final) {
	ends := map[string]uint64{} // that every node had
	for i, f := range all {
		last := map[string]uint64{}
		for _, r := range f.Records {
			if strings.HasPrefix(r.Run, rpc.AccessRuns) {
				last[r.Run] = r.RunSeq
			}
		}
		if i == 0 {
			ends = last
		}
		for run := range ends {
			ends[run] = min(ends[run], last[run])
		}
	}
	for _, f := range all {
		f.Records = slices.DeleteFunc(f.Records, func(r history.Record) bool {
			return strings.HasPrefix(r.Run, rpc.AccessRuns) && r.RunSeq > ends[r.Run]
		})
	}
}

// ends reads the last runSeq of every run.
func (w *worker) ends(ctx context.Context) (map[string]uint64, error) {
	ends := map[string]uint64{}
	for _, run := range slices.Sorted(maps.Keys(w.clients.sent)) {
		last, err := w.lastSeq(ctx, run)
		if err != nil {
			return nil, fmt.Errorf("workload: the end of run %s: %w", run, err)
		}
		if last > 0 {
			ends[run] = last
		}
	}
	return ends, nil
}

// lastSeq reads the last runSeq of a run, and retries until it has it; 0: there is no such run.
func (w *worker) lastSeq(ctx context.Context, run string) (uint64, error) {
	for node := 0; ; node = (node + 1) % len(w.conns) {
		resp, err := w.events(node).ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: run, PageSize: 1})
		switch {
		case err == nil:
			return resp.GetLastSeq(), nil
		case status.Code(err) == codes.NotFound:
			return 0, nil
		case ctx.Err() != nil:
			return 0, err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// final reads a node's records and views, after the node has applied and folded all runs to their
// ends; nil: the node does not return its records.
func (w *worker) final(ctx context.Context, node int, ends map[string]uint64) (*history.Final, error) {
	f := &history.Final{Node: w.clients.opts.Nodes[node]}
	missing := w.views(ctx, node, f, ends)
	statement, err := w.export(ctx, node, f)
	if err != nil {
		return nil, errors.Join(missing, err)
	}
	missing = errors.Join(missing, w.proofs(ctx, node, statement, ends))
	for range askedAgain {
		if a, ok := w.clients.askedBefore(w.rng); ok {
			w.ask(ctx, node, a, &history.Window{}, 1000)
		}
	}
	return f, missing
}

// views reads the snapshots of all runs at their ends, and lets the node verify the runs.
func (w *worker) views(ctx context.Context, node int, f *history.Final, ends map[string]uint64) error {
	ctx, cancel := context.WithTimeout(ctx, viewsPatience)
	defer cancel()
	var missing []error
	for _, run := range slices.Sorted(maps.Keys(ends)) {
		s := history.Snapshot{Run: run, Local: true, MinSeq: ends[run]}
		resp, err := w.projections(node).GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{
			RunId: run, MinSeq: s.MinSeq, Consistency: runlogv1.Consistency_LOCAL,
		})
		if err == nil {
			err = seenSnapshot(&s, resp.GetSnapshot())
		}
		if err != nil {
			missing = append(missing, fmt.Errorf("snapshot of %s: %w", run, err))
			continue
		}
		f.Snapshots = append(f.Snapshots, s)
		switch verified, err := w.audits(node).VerifyRun(ctx, &runlogv1.VerifyRunRequest{RunId: run}); {
		case err != nil:
			missing = append(missing, fmt.Errorf("verification of %s: %w", run, err))
		case !verified.GetOk():
			w.clients.opts.Broken("verification of %s on %s: %s", run, f.Node, verified.GetProblem())
		}
	}
	return errors.Join(missing...)
}

// export reads all records of a node, in commit order, and returns the node's signed statement.
func (w *worker) export(ctx context.Context, node int, f *history.Final) (statement string, err error) {
	attempts, attested := w.clients.attemptsOf(f.Node), w.clients.attestedOf(f.Node)
	s, err := w.audits(node).ExportEvents(ctx, &runlogv1.ExportEventsRequest{To: timestamppb.New(time.Now().Add(time.Hour))})
	for err == nil {
		var resp *runlogv1.ExportEventsResponse
		if resp, err = s.Recv(); err != nil {
			break
		}
		for _, e := range resp.GetEvents() {
			r, err := recordOf(e)
			if err != nil {
				return "", err
			}
			f.Records = append(f.Records, r)
			attempts.check(e)
			attested.check(e)
			w.clients.decisions.check(w.clients.opts.Broken, f.Node, e)
		}
		statement = resp.GetSummary().GetStatement()
	}
	if !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("export: %w", err)
	}
	attested.end()
	return statement, nil
}
