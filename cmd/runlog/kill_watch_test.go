package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// follower is a watcher that goes on from its token, node after node. What it knows is guarded by
// killBed.mu where its own goroutine is not the only one to look at it.
type follower interface {
	// follow watches until the stream ends. known has how far the runs were acknowledged before.
	follow(ctx context.Context, c runlogv1.ProjectionServiceClient, known map[string]uint64) error
	// missing says what the watcher has not been told of, now that the runs are so; "" when nothing
	// is missing.
	missing(runs map[string]*runlogv1.Run) string
	// aboutRun is what a watcher of one run watches.
	aboutRun() string
	String() string
}

// ended wants a reason for the end of a stream: the node is gone, or the run is not there yet.
func (b *killBed) ended(w follower, known map[string]uint64, err error) {
	_, there := known[w.aboutRun()]
	switch code := status.Code(err); {
	case code == codes.Unavailable, code == codes.NotFound && w.aboutRun() != "" && !there:
	default:
		b.t.Errorf("%v ended with %v", w, err)
	}
}

// awaitWatchers waits until all watchers have been told of everything, while nothing is appended.
func (b *killBed) awaitWatchers(conn *grpc.ClientConn) {
	b.t.Helper()
	runs := b.list(b.ctx, conn, &runlogv1.ListRunsRequest{})
	for _, w := range b.watchers {
		missing := ""
		b.t.Cleanup(func() {
			if missing != "" {
				b.t.Logf("not told to %v: %s", w, missing)
			}
		})
		await.Poll(b.t, "a watcher that has been told of everything", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			missing = w.missing(runs)
			return missing == ""
		})
	}
}

// eventFollower must meet every event of a run once and in order (WATCH-1).
type eventFollower struct {
	bed     *killBed
	run     string
	token   string
	last    uint64
	streams int
}

func (f *eventFollower) aboutRun() string { return f.run }
func (f *eventFollower) String() string {
	return fmt.Sprintf("%d events of %s in %d streams", f.last, f.run, f.streams)
}

func (f *eventFollower) follow(ctx context.Context, c runlogv1.ProjectionServiceClient, known map[string]uint64) error {
	stream, err := c.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: f.run, View: runlogv1.WatchView_EVENT, ResumeToken: f.token})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if first {
			f.streams++
		}
		for _, e := range m.GetEvents().GetEvents() {
			if e.RunSeq != f.last+1 {
				f.bed.t.Errorf("%v: runSeq %d after %d (WATCH-1)", f, e.RunSeq, f.last)
			}
			f.bed.saw(f.run, e.RunSeq, sighting{chain: e.ChainDigest})
			f.bed.mu.Lock()
			f.last = e.RunSeq
			f.bed.mu.Unlock()
		}
		if m.GetCaughtUp() != nil && f.last < known[f.run] {
			f.bed.t.Errorf("%v: caught up, and %d was acknowledged before (WATCH-1)", f, known[f.run])
		}
		f.token = m.ResumeToken
	}
}

func (f *eventFollower) missing(runs map[string]*runlogv1.Run) string {
	if head := runs[f.run].GetLastSeq(); f.last < head {
		return fmt.Sprintf("the events up to %d", head)
	}
	return ""
}

// markFollower watches a run's watermarks or snapshots, which never go back (WATCH-3).
type markFollower struct {
	bed     *killBed
	run     string
	view    runlogv1.WatchView_Kind
	token   string
	last    uint64 // told
	highest uint64 // told or mentioned
	number  int
	streams int
}

func (f *markFollower) aboutRun() string { return f.run }
func (f *markFollower) String() string {
	return fmt.Sprintf("%d of view %v of %s in %d streams up to %d", f.number, f.view, f.run, f.streams, f.last)
}

func (f *markFollower) follow(ctx context.Context, c runlogv1.ProjectionServiceClient, known map[string]uint64) error {
	stream, err := c.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: f.run, View: f.view, ResumeToken: f.token})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if first {
			f.streams++
		}
		var seq uint64
		switch k := m.Kind.(type) {
		case *runlogv1.WatchRunResponse_Watermark:
			seq = k.Watermark.LastEventSeq
			f.tell(seq, sighting{status: k.Watermark.Status})
		case *runlogv1.WatchRunResponse_Snapshot:
			seq = k.Snapshot.LastEventSeq
			f.tell(seq, sighting{status: k.Snapshot.Status, digest: k.Snapshot.Digest})
		case *runlogv1.WatchRunResponse_CaughtUp:
			seq = k.CaughtUp.Watermark.LastEventSeq
			f.bed.saw(f.run, seq, sighting{status: k.CaughtUp.Watermark.Status})
			if min(f.last, seq) < known[f.run] {
				f.bed.t.Errorf("%v: caught up at %d, and %d was acknowledged before (WATCH-1)", f, seq, known[f.run])
			}
		default:
			seq = m.GetHeartbeat().GetWatermark().GetLastEventSeq()
		}
		if seq < f.highest {
			f.bed.t.Errorf("%v: %T at %d after one at %d (WATCH-3)", f, m.Kind, seq, f.highest)
		}
		f.highest = seq
		f.token = m.ResumeToken
	}
}

func (f *markFollower) tell(seq uint64, what sighting) {
	if seq <= f.last {
		f.bed.t.Errorf("%v: %d after %d (WATCH-3)", f, seq, f.last)
	}
	f.bed.saw(f.run, seq, what)
	f.bed.mu.Lock()
	defer f.bed.mu.Unlock()
	f.last = seq
	f.number++
}

func (f *markFollower) missing(runs map[string]*runlogv1.Run) string {
	if head := runs[f.run].GetLastSeq(); f.last < head {
		return fmt.Sprintf("the newest one, %d", head)
	}
	return ""
}

// runsFollower watches all runs that a filter names, in commit order, and misses the last watermark
// of none (WATCH-2).
type runsFollower struct {
	bed     *killBed
	filter  *runlogv1.WatchRunsRequest
	token   string
	listing bool              // the runs that there are come, and may come again afterwards
	stamp   time.Time         // of the last watermark, in commit order
	marks   map[string]uint64 // lastEventSeq+1 of each run that was told of
	in      map[string]bool   // the runs that are in the filter's status, by what was told
	number  int
	streams int
}

func (f *runsFollower) aboutRun() string { return "" }
func (f *runsFollower) String() string {
	return fmt.Sprintf("%d watermarks of %d runs {%v} in %d streams", f.number, len(f.marks), f.filter, f.streams)
}

func (f *runsFollower) follow(ctx context.Context, c runlogv1.ProjectionServiceClient, known map[string]uint64) error {
	req := &runlogv1.WatchRunsRequest{TenantId: f.filter.TenantId, Status: f.filter.Status, IncludeExisting: f.filter.IncludeExisting, ResumeToken: f.token}
	stream, err := c.WatchRuns(ctx, req)
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if first {
			f.streams++
		}
		if w := m.GetWatermark(); w != nil {
			f.tell(w)
		}
		if m.GetCaughtUp() != nil {
			f.caughtUp(known)
		}
		f.bed.mu.Lock()
		f.token = m.ResumeToken
		f.bed.mu.Unlock()
	}
}

func (f *runsFollower) tell(w *runlogv1.Watermark) {
	f.bed.saw(w.RunId, w.LastEventSeq, sighting{status: w.Status})
	f.bed.mu.Lock()
	defer f.bed.mu.Unlock()
	if was := f.marks[w.RunId]; w.LastEventSeq+1 < was || w.LastEventSeq+1 == was && !f.listing {
		f.bed.t.Errorf("%v: %s at %d after %d (WATCH-3)", f, w.RunId, w.LastEventSeq, was-1)
	}
	if at := w.PersistedAt; at != nil && !f.listing {
		if at.AsTime().Before(f.stamp) {
			f.bed.t.Errorf("%v: %v comes after one of %v, and was committed before (WATCH-2)", f, w, f.stamp)
		}
		f.stamp = at.AsTime()
	}
	f.marks[w.RunId] = w.LastEventSeq + 1
	f.number++
	if slices.Contains(f.filter.Status, w.Status) {
		f.in[w.RunId] = true
	} else {
		delete(f.in, w.RunId)
	}
}

// caughtUp wants everything to have been told that was acknowledged before the stream began.
func (f *runsFollower) caughtUp(known map[string]uint64) {
	f.bed.mu.Lock()
	defer f.bed.mu.Unlock()
	f.listing = false
	for run, head := range known {
		if len(f.filter.Status) == 0 && f.concerns(run) && f.marks[run] < head+1 {
			f.bed.t.Errorf("%v: caught up with %s before %d, which was acknowledged before (WATCH-1)", f, run, head)
		}
	}
}

func (f *runsFollower) concerns(run string) bool {
	return f.filter.TenantId == "" || f.filter.TenantId == tenantOf(run)
}

func (f *runsFollower) missing(runs map[string]*runlogv1.Run) string {
	if f.token == "" {
		return "everything"
	}
	for id, run := range runs {
		switch {
		case !f.concerns(id):
		case len(f.filter.Status) == 0 && f.marks[id] != run.LastSeq+1:
			return fmt.Sprintf("%v; the last it was told of is %d", run, f.marks[id]-1)
		case len(f.filter.Status) > 0 && f.in[id] != slices.Contains(f.filter.Status, run.Status):
			return fmt.Sprintf("%v; it was told that it is in this status: %v", run, f.in[id])
		}
	}
	return ""
}
