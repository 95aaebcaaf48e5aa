package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	"runlog/server/rpc"
	"runlog/storage"
)

// windowRequest is the common part of requests for a window.
type windowRequest interface {
	GetFrom() *timestamppb.Timestamp
	GetTo() *timestamppb.Timestamp
	GetTenantId() string
	GetProjectId() string
	GetEnvironmentId() string
	GetPlanId() string
	GetRunId() string
	GetStepId() string
	GetTypes() []string
	GetPageToken() string
}

// window is a request for the events of a time window, and the progress of its answer (READ-3).
type window struct {
	from, to int64 // nanoseconds since 1970; to == 0: until now
	filter   storage.WindowFilter
	asked    [sha256.Size]byte // hash of the request
	at       windowPlace
	// vouched is true if this cluster has counted everything before at: the answer began at the
	// begin of the window, or a token that the cluster's newest key has signed says so. Only then
	// is an answer signed.
	vouched bool
}

// windowPlace is the cursor of an answer, after the events so far, with their count and digest.
type windowPlace struct {
	cursor storage.WindowCursor
	count  uint64
	digest contract.Digest
}

// parseWindow validates a request and lists every fault.
func (s *Service) parseWindow(ctx context.Context, req windowRequest) (*window, error) {
	w := &window{filter: storage.WindowFilter{
		TenantID: req.GetTenantId(), ProjectID: req.GetProjectId(), EnvironmentID: req.GetEnvironmentId(),
		PlanID: req.GetPlanId(), RunID: req.GetRunId(), StepID: req.GetStepId(),
		Types: slices.Compact(slices.Sorted(slices.Values(req.GetTypes()))),
	}}
	bad := w.filterFaults()
	if asked := req.GetTenantId(); asked != "" && len(bad) == 0 {
		if err := rpc.CheckTenant(ctx, "tenantId", asked); err != nil {
			return nil, err
		}
	}
	tenant, among := rpc.ShownTenants(ctx, req.GetTenantId())
	w.filter.TenantID = tenant
	fault := func(field, text string) {
		bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: text})
	}
	if len(among) > 0 {
		// The answer may be signed, and must not mean another thing for each caller.
		fault("tenantId", "is required, because you see several tenants and not all: name one of "+strings.Join(among, ", "))
	}
	var err error
	if w.from, err = rpc.Bound("from", req.GetFrom()); err != nil {
		fault("from", "is not a time between 1970 and 2262")
	}
	if w.to, err = rpc.Bound("to", req.GetTo()); err != nil {
		fault("to", "is not a time between 1970 and 2262")
	}
	if len(bad) == 0 {
		if now, ahead, err := s.liesAhead(ctx, w.from); err != nil {
			return nil, err
		} else if ahead {
			fault("from", fmt.Sprintf("is in the future: it is %s now, and no event can be in the window yet",
				time.Unix(0, now).UTC().Format(time.RFC3339)))
		} else if req.GetTo() != nil && w.from >= w.to {
			fault("to", "is not after from: the window is empty; from is inclusive, to is exclusive")
		}
	}
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	w.asked = w.hash()
	if token := req.GetPageToken(); token != "" {
		return w, s.resumeWindow(w, token)
	}
	w.vouched = true
	return w, nil
}

// maxClockAhead is how far a caller's clock may be ahead of this node's.
const maxClockAhead = 10 * time.Second

// liesAhead reports whether a time is after every stamp so far, and the current time by the
// deciding clock. The leader makes the stamps, and they rise above the last one even if a clock is
// behind (APP-5). If this node's clock is behind, or it lacks the last stamps, it asks the leader.
func (s *Service) liesAhead(ctx context.Context, at int64) (now int64, ahead bool, err error) {
	now = max(s.opts.Clock().UnixNano(), s.node.Store().Applied().PersistedAt)
	if at <= now+int64(maxClockAhead) {
		return now, false, nil
	}
	_, now, err = s.node.CloseThrough(ctx, 0)
	return now, at > now+int64(maxClockAhead), err
}

func (w *window) filterFaults() (bad []contract.Violation) {
	check := func(field, value string, fault func(string) string) {
		if value != "" && fault(value) != "" {
			bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fault(value)})
		}
	}
	f := &w.filter
	check("tenantId", f.TenantID, contract.StoredScopeFault)
	check("projectId", f.ProjectID, contract.StoredScopeFault)
	check("environmentId", f.EnvironmentID, contract.StoredScopeFault)
	check("planId", f.PlanID, contract.StoredNameFault)
	check("runId", f.RunID, contract.StoredNameFault)
	check("stepId", f.StepID, contract.StoredNameFault)
	return append(bad, rpc.CheckTypes(f.Types)...)
}

// add counts an event of the answer.
func (w *windowPlace) add(r *storage.Record) {
	w.count++
	w.digest = contract.WindowDigest(w.digest, &r.Event, r.RecordDigest, r.RunSeq, r.PersistedAt, r.ChainDigest)
}

// windowAnswer is the state for which an answer is valid.
type windowAnswer struct {
	positions storage.PositionRange
	// through is the time at or before which no event will ever be stamped again. It is at most the
	// end of the window, so that a closed window has one answer.
	through int64
}

func (a *windowAnswer) closed(w *window) bool { return w.to <= a.through }

// closeWindow returns the positions of a window once this node has all of its events. If the window
// ends before a stamp that this node has seen, no leader is needed. Otherwise the leader closes the
// window (READ-4, D7).
func (s *Service) closeWindow(ctx context.Context, w *window) (a windowAnswer, err error) {
	if now := s.node.Store().Applied(); w.to == 0 || w.to > now.PersistedAt {
		position, to, err := s.node.CloseThrough(ctx, w.to)
		if err == nil {
			w.to = to
			err = s.node.Await(ctx, position)
		}
		if err != nil {
			return a, err
		}
	}
	a.positions, a.through, err = s.node.Store().PositionRange(w.from, w.to)
	a.through = min(a.through, w.to)
	return a, err
}
