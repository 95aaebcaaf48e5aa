package projector

import (
	"context"
	"errors"

	"runlog/projector/list"
	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/storage"
)

// Subscribe follows a run (see watch.Hub.Subscribe).
func (p *Projector) Subscribe(runID string, notify func()) (*watch.Subscription, error) {
	return p.watch.Subscribe(runID, notify)
}

// SubscribeRuns follows the runs that a filter selects (see watch.Hub.SubscribeRuns).
func (p *Projector) SubscribeRuns(f run.Filter, from *watch.Cursor) (*watch.RunsSubscription, error) {
	return p.watch.SubscribeRuns(f, from)
}

// source is the projector as subscriptions read it.
type source struct{ p *Projector }

var _ watch.Source = source{}

func (s source) Position() storage.Position { return s.p.Position() }

func (s source) WaitPosition(ctx context.Context, at storage.Position) error {
	return s.p.WaitPosition(ctx, at)
}

func (s source) AtLeast(r *storage.Run, seq uint64) (_ *run.Snapshot, err error) {
	snapshot, err := s.p.load(r)
	if err == nil && snapshot.LastEventSeq >= seq {
		return snapshot, nil
	}
	v, err := s.p.opts.Store.View(r.RunID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return s.p.Snapshot(v)
}

func (s source) List(f run.Filter, from []byte, limit int) ([]run.Listed, []byte, storage.Position, error) {
	page, err := s.p.List(f, from, limit)
	return page.Runs, page.Next, page.Position, err
}

func (s source) After(r *storage.Run) []byte { return list.After(r.CreatedAt, r.RunID, false) }
