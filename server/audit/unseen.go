package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// Types knows which event types the log has.
type Types interface {
	// UnseenTypes returns those of some types that no event up to a position has. It waits until it
	// knows, or until the context ends.
	UnseenTypes(ctx context.Context, types []string, at storage.Position) ([]string, error)
}

// unseenWait is how long an answer waits to find out that the cluster lacks a value of its filter.
const unseenWait = time.Second

// unseen returns the values of a filter that no event of the cluster has. It leaves out the types
// of the events that the answer has anyway.
//
// This node may lack the newest events. So if it does not find a value, it asks the leader how far
// the log is, and looks again from there.
func (s *Service) unseen(ctx context.Context, f *storage.WindowFilter, found []*runlogv1.EventRecord) (list []*runlogv1.UnseenValue, err error) {
	var types []string
	for _, name := range f.Types {
		if !slices.ContainsFunc(found, func(r *runlogv1.EventRecord) bool { return r.GetEventType() == name }) {
			types = append(types, name)
		}
	}
	runExists := f.RunID == "" || len(found) > 0
	if !runExists {
		if runExists, err = s.hasRun(f.RunID); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, unseenWait)
	defer cancel()
	if rest, err := s.opts.Types.UnseenTypes(ctx, types, 0); err == nil {
		types = rest // Most queries name types that this node has seen.
	}
	if runExists && len(types) == 0 {
		return nil, nil
	}
	// An error leaves the answer uncertain: without a leader, or while the projection is rebuilt,
	// windows are answered still.
	late := s.node.ReadIndex(ctx)
	if !runExists {
		if runExists, err = s.hasRun(f.RunID); err != nil {
			return nil, err
		}
	}
	if !runExists {
		list = append(list, &runlogv1.UnseenValue{Field: "runId", Value: f.RunID, Uncertain: late != nil})
	}
	if late == nil && len(types) > 0 {
		now := s.node.Store().Applied()
		var rest []string
		if rest, late = s.opts.Types.UnseenTypes(ctx, types, now.Position()); late == nil {
			types = rest
		}
	}
	for _, name := range types {
		likely, _ := contract.LikelyType(name)
		list = append(list, &runlogv1.UnseenValue{Field: "types", Value: name, DidYouMean: likely, Uncertain: late != nil})
	}
	return list, nil
}

func (s *Service) hasRun(runID string) (bool, error) {
	_, err := s.node.Store().Run(runID)
	if _, none := errors.AsType[*storage.RunNotFoundError](err); none {
		return false, nil
	}
	return err == nil, err
}
