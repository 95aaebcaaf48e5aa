package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/storage"
)

// Seen knows which event types and tenants the events of the log have. The calls wait until they
// know, or until the context ends.
type Seen interface {
	// UnseenTypes returns those of some types that no event up to a position has.
	UnseenTypes(ctx context.Context, types []string, at storage.Position) ([]string, error)
	// UnseenTenants does the same for tenants.
	UnseenTenants(ctx context.Context, tenants []string, at storage.Position) ([]string, error)
}

// unseenWait is how long an answer waits to find out that the cluster lacks a value of its filter.
const unseenWait = time.Second

// unseen returns the values of a filter that no event of the cluster has. It leaves out the values
// of the events that the answer has anyway.
//
// This node may lack the newest events. So if it does not find a value, it asks the leader how far
// the log is, and looks again from there.
func (s *Service) unseen(ctx context.Context, f *storage.WindowFilter, found []*runlogv1.EventRecord) (list []*runlogv1.UnseenValue, err error) {
	u := unseenValues{s: s}
	for _, name := range f.Types {
		if !slices.ContainsFunc(found, func(r *runlogv1.EventRecord) bool { return r.GetEventType() == name }) {
			u.types = append(u.types, name)
		}
	}
	if len(found) == 0 {
		u.run = f.RunID
		if f.TenantID != "" {
			u.tenants = []string{f.TenantID}
		}
	}
	if i := auth.From(ctx); !i.Tenants.All {
		u.identity, u.types = i, nil // Other tenants may have the types.
	}
	ctx, cancel := context.WithTimeout(ctx, unseenWait)
	defer cancel()
	// Most queries name values that this node has seen.
	if err := u.look(ctx, 0); err != nil || u.none() {
		return nil, err
	}
	// Without a leader, or while the projection is rebuilt, the answer is uncertain: windows are
	// answered still.
	uncertain := s.node.ReadIndex(ctx) != nil
	if !uncertain {
		now := s.node.Store().Applied()
		if err := u.look(ctx, now.Position()); err != nil {
			return nil, err
		}
	}
	return u.values(uncertain), nil
}

// unseenValues are the values of a filter that were not found yet.
type unseenValues struct {
	s       *Service
	tenants []string
	run     string
	types   []string
	// identity is that of a caller that does not see every tenant.
	identity *auth.Identity
	// behind is true if the projection did not get as far as the last look needed.
	behind bool
}

// look removes the values that an event up to a position has. err is that of a damaged store.
func (u *unseenValues) look(ctx context.Context, at storage.Position) error {
	if u.run != "" {
		exists, err := u.s.hasRun(u.run, u.identity)
		if err != nil {
			return err
		}
		if exists {
			u.run = ""
		}
	}
	types, err := u.s.opts.Seen.UnseenTypes(ctx, u.types, at)
	tenants, err2 := u.s.opts.Seen.UnseenTenants(ctx, u.tenants, at)
	if u.behind = err != nil || err2 != nil; !u.behind {
		u.types, u.tenants = types, tenants
	}
	return nil
}

func (u *unseenValues) none() bool { return len(u.tenants) == 0 && u.run == "" && len(u.types) == 0 }

func (u *unseenValues) values(uncertain bool) (list []*runlogv1.UnseenValue) {
	for _, tenant := range u.tenants {
		list = append(list, &runlogv1.UnseenValue{Field: "tenantId", Value: tenant, Uncertain: uncertain || u.behind})
	}
	if u.run != "" {
		list = append(list, &runlogv1.UnseenValue{Field: "runId", Value: u.run, Uncertain: uncertain})
	}
	for _, name := range u.types {
		likely, _ := contract.LikelyType(name)
		list = append(list, &runlogv1.UnseenValue{Field: "types", Value: name, DidYouMean: likely, Uncertain: uncertain || u.behind})
	}
	return list
}

// hasRun reports whether there is a run that an identity sees; nil: any run.
func (s *Service) hasRun(runID string, by *auth.Identity) (bool, error) {
	r, err := s.node.Store().Run(runID)
	if _, none := errors.AsType[*storage.RunNotFoundError](err); none {
		return false, nil
	}
	return err == nil && (by == nil || by.Sees(r.Scope.TenantID)), err
}
