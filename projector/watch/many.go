package watch

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"runlog/projector/run"
	"runlog/storage"
)

const (
	// maxPending bounds the runs that wait for a reader of many. A reader that is further behind
	// reads the log.
	maxPending = 1000
	// catchUpEvents is about how much of the log one step of a catch-up reads.
	catchUpEvents = 4096
	// maxCatchUps bounds the catch-ups that read the log at a time: appends and folding need the
	// machine too.
	maxCatchUps = 4
)

// Cursor is a place in the commit order: everything up to Position, and the first Ahead commits
// behind it.
type Cursor struct {
	Position storage.Position
	Ahead    uint64
}

// Next returns the cursor behind a commit at a position. The commit follows c directly.
func (c Cursor) Next(at storage.Position) Cursor {
	if c.Position+1 == at {
		return Cursor{Position: c.Position, Ahead: c.Ahead + 1}
	}
	return Cursor{Position: at - 1, Ahead: 1}
}

// Compare orders cursors by commit order.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(cmp.Compare(c.Position, d.Position), cmp.Compare(c.Ahead, d.Ahead))
}

// Mark is a run's watermark.
type Mark struct {
	RunID        string
	LastEventSeq uint64 // 0: no event yet
	Status       run.Status
	PersistedAt  time.Time // of the newest event
	run.Drain
}

// MarkOf returns the watermark of a snapshot.
func MarkOf(s *run.Snapshot) Mark {
	return Mark{RunID: s.RunID, LastEventSeq: s.LastEventSeq, Status: s.Status, PersistedAt: s.PersistedAt, Drain: s.Drain()}
}

// Change is the newest state of a run, for a reader of many.
type Change struct {
	Mark
	// Cursor is the place behind this change and everything before it.
	Cursor Cursor
	// Committed is the time at which the newest event came into the log, for the projection lag
	// (PRJ-11): imported events were persisted long before. It is zero while a subscription catches
	// up.
	Committed time.Time
}

// RunsSubscription follows the runs that a filter selects (WATCH-2). A slow reader sees only the
// newest change of each run (WATCH-3). One goroutine reads it.
//
// Published changes wait in pending, one for each run. The reader takes all of them and sorts them
// by the runs' newest commits. So it always knows everything up to a place in the commit order,
// except for runs that come again later, and a run that changes all the time gets its turn. If more
// than maxPending runs are pending, pending is dropped, and the reader reads the log up to that
// position, as a reader that resumes does.
type RunsSubscription struct {
	hub    *Hub
	filter run.Filter
	wake   chan struct{} // room for one, filled when there is news
	cursor Cursor        // behind the changes that the reader has taken
	// upTo is the position of the store when the subscription began to catch up. The projection may
	// be behind it.
	upTo storage.Position

	mu   sync.Mutex
	live storage.Position // pending has everything behind it
	// sure is the cursor from which on a round finds runs as the reader knows them.
	sure    Cursor
	pending map[string]*Change
}

// SubscribeRuns follows runs from a cursor on; nil: from now on. It ignores the filter's times of
// creation. The caller closes the subscription.
func (w *Hub) SubscribeRuns(f run.Filter, from *Cursor) (*RunsSubscription, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.subscribeRunsLocked(f, from)
}

func (w *Hub) subscribeRunsLocked(f run.Filter, from *Cursor) (*RunsSubscription, error) {
	if err := w.admitLocked(); err != nil {
		return nil, err
	}
	// Changes that are folded and not yet published are no news: the caller may have waited for
	// them.
	live := max(w.Published(), w.source.Position())
	upTo := live
	if from == nil {
		from = &Cursor{Position: live}
	} else {
		applied := w.store.Applied()
		upTo = applied.Position()
	}
	s := &RunsSubscription{hub: w, filter: f, wake: make(chan struct{}, 1), cursor: *from, upTo: upTo, live: live, sure: *from}
	if from.Position < live {
		s.sure = never
	}
	if live < upTo {
		w.awaitLocked(s)
	}
	if w.byTenant == nil {
		w.byTenant = map[string]map[*RunsSubscription]struct{}{}
	}
	if w.byTenant[f.TenantID] == nil {
		w.byTenant[f.TenantID] = map[*RunsSubscription]struct{}{}
	}
	w.byTenant[f.TenantID][s] = struct{}{}
	return s, nil
}

// Close ends the subscription.
func (s *RunsSubscription) Close() {
	w, tenant := s.hub, s.filter.TenantID
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.byTenant[tenant][s]; !ok {
		return
	}
	delete(w.behind, s)
	delete(w.byTenant[tenant], s)
	if len(w.byTenant[tenant]) == 0 {
		delete(w.byTenant, tenant)
	}
	w.number--
}

// tellManyLocked hands the runs of a round to the subscriptions of many, in commit order.
func (w *Hub) tellManyLocked(position storage.Position, changed iter.Seq[*News]) {
	if len(w.byTenant) == 0 {
		return
	}
	var news []*News
	for n := range changed {
		// A snapshot that is ahead of the round was stored before a restart. A later round has its
		// newest event.
		reported := n.Cursor != Cursor{} && n.Now.LastEventSeq == n.Seq
		if reported && len(w.byTenant[""])+len(w.byTenant[n.Run.Scope.TenantID]) > 0 {
			news = append(news, n)
		}
	}
	slices.SortFunc(news, func(a, b *News) int { return a.Cursor.Compare(b.Cursor) })
	round := positionRange{from: Cursor{Position: w.Published()}, to: position}
	if round.from.Position < w.highest {
		// The projection begins again, from before these subscriptions.
		round.from = Cursor{}
	}
	for _, n := range news {
		c := &Change{Mark: MarkOf(n.Now), Cursor: n.Cursor, Committed: time.Unix(0, n.Stamp)}
		for s := range w.byTenant[""] {
			s.tell(round, n, c)
		}
		if tenant := n.Run.Scope.TenantID; tenant != "" {
			for s := range w.byTenant[tenant] {
				s.tell(round, n, c)
			}
		}
	}
}

// positionRange is the part of the log that a round has folded.
type positionRange struct {
	from Cursor
	to   storage.Position
}

// tell hands a run that a round has changed to the subscription.
func (s *RunsSubscription) tell(round positionRange, n *News, c *Change) {
	if !s.filter.Names(n.Run) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A reader of the log leaves later changes to news: it does not know the run's earlier status.
	unsure := n.Unsure || s.sure.Compare(round.from) > 0
	_, known := s.pending[c.RunID]
	switch {
	case c.Cursor.Position < s.live: // the reader finds it in the log
		return
	case known:
	case !s.filter.Statuses.Match(c.Status) && !s.filter.Statuses.Match(n.Before.Status) && !unsure:
		return
	case len(s.pending) == maxPending:
		s.pending, s.live, s.sure = nil, round.to, never
		nudge(s.wake)
		return
	case s.pending == nil:
		s.pending = map[string]*Change{}
	}
	s.pending[c.RunID] = c
	nudge(s.wake)
}

// Cursor returns the cursor behind everything that Next has returned.
func (s *RunsSubscription) Cursor() Cursor { return s.cursor }

// CaughtUp reports whether the next changes are live. They are not while the projection is behind
// the position that the store had when the subscription began.
func (s *RunsSubscription) CaughtUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor.Position >= max(s.live, s.upTo)
}

// Next waits for news and returns it in commit order, or the context's error. While the
// subscription catches up, Next may return no change.
func (s *RunsSubscription) Next(ctx context.Context) ([]*Change, error) {
	behind := !s.CaughtUp()
	for {
		news, live := s.take()
		switch {
		case s.cursor.Position < live:
			return s.catchUp(ctx, live)
		case len(news) > 0, behind && s.CaughtUp():
			return news, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take returns the pending changes, or the position live up to which the log has to be read first.
func (s *RunsSubscription) take() (news []*Change, live storage.Position) {
	// Read published first: everything up to it is pending or was taken.
	published := Cursor{Position: storage.Position(s.hub.published.Load())}
	s.mu.Lock()
	if s.cursor.Position < s.live {
		defer s.mu.Unlock()
		return nil, s.live
	}
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	// A projection that begins again publishes everything once more.
	news = slices.DeleteFunc(slices.Collect(maps.Values(pending)), func(c *Change) bool { return c.Cursor.Compare(s.cursor) <= 0 })
	slices.SortFunc(news, func(a, b *Change) int { return a.Cursor.Compare(b.Cursor) })
	if len(news) > 0 && published.Compare(news[len(news)-1].Cursor) < 0 {
		published = news[len(news)-1].Cursor
	}
	if s.cursor.Compare(published) < 0 {
		s.cursor = published
	}
	return news, 0
}

// catchUp reads a piece of the log behind the cursor, up to a position. It returns the runs whose
// newest commit is in it. The others have later commits, to which the reader comes.
func (s *RunsSubscription) catchUp(ctx context.Context, to storage.Position) ([]*Change, error) {
	select {
	case s.hub.catchUps <- struct{}{}:
		defer func() { <-s.hub.catchUps }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	latest, end, err := s.scan(to)
	if err != nil {
		return nil, err
	}
	var news []*Change
	left := false // some runs have later commits and were not reported yet
	for _, l := range latest {
		c, more, err := s.change(l)
		if err != nil {
			return nil, err
		}
		if c != nil {
			news = append(news, c)
		}
		left = left || more
	}
	slices.SortFunc(news, func(a, b *Change) int { return a.Cursor.Compare(b.Cursor) })
	s.cursor = end
	s.caughtUp(left)
	return news, nil
}

// caughtUp notes the position from which on the reader depends on news alone, if it does: no
// snapshot that the catch-up has met is newer than the store is now.
//
// If runs are left that have later commits, the reader is caught up only after those: until then it
// knows nothing of the runs.
func (s *RunsSubscription) caughtUp(left bool) {
	w := s.hub
	applied := w.store.Applied()
	w.mu.Lock()
	defer w.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cursor.Position >= s.live {
		s.sure = Cursor{Position: applied.Position()}
	}
	if !left {
		return
	}
	s.upTo = max(s.upTo, applied.Position())
	if storage.Position(w.published.Load()) < s.upTo {
		w.awaitLocked(s)
	}
}

// awaitLocked makes Publish wake a subscription once everything up to its upTo is published.
func (w *Hub) awaitLocked(s *RunsSubscription) {
	if w.behind == nil {
		w.behind = map[*RunsSubscription]struct{}{}
	}
	w.behind[s] = struct{}{}
}

// latestCommit is the last commit of a run in a piece of the log.
type latestCommit struct {
	run    *storage.Run
	cursor Cursor
	seq    uint64 // 0: it has no event
}

// scan reads a piece of the log. It returns the filter's runs in it, and the cursor behind it.
func (s *RunsSubscription) scan(to storage.Position) (latest map[string]latestCommit, end Cursor, err error) {
	latest = map[string]latestCommit{}
	at, skip, events := Cursor{Position: s.cursor.Position}, s.cursor.Ahead, 0
	for c, err := range s.hub.store.Follow(storage.Facts).Log(s.cursor.Position) {
		if err != nil {
			return nil, Cursor{}, err
		}
		if c.Position > to {
			break
		}
		if events >= catchUpEvents {
			return latest, at, nil
		}
		at = at.Next(c.Position)
		events += max(1, len(c.Records))
		if skip > 0 {
			skip--
			continue
		}
		if !s.filter.Names(c.Run) {
			continue
		}
		l := latestCommit{run: c.Run, cursor: at}
		if n := len(c.Records); n > 0 {
			l.seq = c.Records[n-1].RunSeq
		} else if before, ok := latest[c.Run.RunID]; ok && before.seq > 0 {
			continue // the state of its newest event is reported
		}
		latest[c.Run.RunID] = l
	}
	return latest, Cursor{Position: to}, nil
}

// change returns the change of a run to tell after a commit, nil if there is none. It reports
// whether there is none because the run has later commits.
func (s *RunsSubscription) change(l latestCommit) (c *Change, more bool, err error) {
	now, err := s.hub.source.AtLeast(l.run, l.seq)
	if err != nil {
		return nil, false, err
	}
	// A commit without an event is news of a run that has none, and of one that may have ceased to
	// drain (PRJ-9).
	if now.LastEventSeq != l.seq && (l.seq > 0 || now.Drain().Running == 0) {
		return nil, true, nil
	}
	// The status that was reported last is not known, except that a run that did not exist was not
	// reported.
	created := Cursor{Position: l.run.CreatedPosition - 1}
	if !s.filter.Statuses.Match(now.Status) && s.cursor.Compare(created) <= 0 {
		return nil, false, nil
	}
	return &Change{Mark: MarkOf(now), Cursor: l.cursor}, false, nil
}

// Existing returns a page of the runs that match now, newest first, from a place in their list on.
// It returns the place where the next page begins, nil at the end. It leaves out the runs that Next
// is about to return.
func (s *RunsSubscription) Existing(ctx context.Context, from []byte, limit int) (page []Existing, next []byte, err error) {
	source := s.hub.source
	listed, next, at, err := source.List(s.filter, from, limit)
	// The list may have been rebuilt since the subscription began, and may be at its begin again.
	for err == nil && at < s.cursor.Position {
		if err = source.WaitPosition(ctx, s.cursor.Position); err == nil {
			listed, next, at, err = source.List(s.filter, from, limit)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	for _, l := range listed {
		r, err := s.hub.store.Run(l.RunID)
		if err != nil {
			return nil, nil, err
		}
		now, err := source.AtLeast(r, 0)
		if err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
		_, pending := s.pending[l.RunID]
		s.mu.Unlock()
		// A snapshot is served before it is published: an older one that is pending would follow
		// it.
		if !pending && s.filter.Statuses.Match(now.Status) {
			page = append(page, Existing{Mark: MarkOf(now), Next: source.After(r)})
		}
	}
	return page, next, nil
}

// Existing is a run that matched already when a subscription began.
type Existing struct {
	Mark
	// Next is the place in the list behind the run.
	Next []byte
}
