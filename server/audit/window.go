package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// windowRequest is what questions for a window have in common.
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

// window is a question for the events of a positions of time, and how far it has been answered
// (READ-3).
type window struct {
	from, to int64 // nanoseconds since 1970; to 0: until now
	filter   storage.WindowFilter
	asked    [sha256.Size]byte // a hash of the question
	at       windowPlace
	// vouched says that at comes of what this cluster has read: it began at the begin, or where a
	// token says so that the cluster has signed. Only then is an answer signed.
	vouched bool
}

// windowPlace is where an answer goes on: behind the events that were given, of which it has the
// number and the digest.
type windowPlace struct {
	cursor storage.WindowCursor
	count  uint64
	digest contract.Digest
}

// parseWindow checks a question, and names all that is wrong with it.
func (s *Service) parseWindow(ctx context.Context, req windowRequest) (*window, error) {
	w := &window{filter: storage.WindowFilter{
		TenantID: req.GetTenantId(), ProjectID: req.GetProjectId(), EnvironmentID: req.GetEnvironmentId(),
		PlanID: req.GetPlanId(), RunID: req.GetRunId(), StepID: req.GetStepId(),
		Types: slices.Compact(slices.Sorted(slices.Values(req.GetTypes()))),
	}}
	bad := w.filterFaults()
	fault := func(field, text string) {
		bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: text})
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
			fault("from", fmt.Sprintf("lies ahead: it is %s now, and nothing can have been persisted in the window yet",
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

// liesAhead tells whether nothing can have been stamped at or after a time yet, and what time it is
// by that clock. Stamps are the leader's, and go on above the last one, whatever clocks say
// (APP-5): where this node's clock is behind, or it has not seen the last stamps, the leader is
// asked.
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
	check("tenantId", f.TenantID, contract.TextFault)
	check("projectId", f.ProjectID, contract.TextFault)
	check("environmentId", f.EnvironmentID, contract.TextFault)
	check("planId", f.PlanID, contract.NameFault)
	check("runId", f.RunID, contract.NameFault)
	check("stepId", f.StepID, contract.NameFault)
	if n := len(f.Types); n > wire.MaxTypes {
		return append(bad, contract.Violation{Field: "types", Reason: contract.ReasonInvalidArgumentField,
			Description: fmt.Sprintf("are %d, at most %d", n, wire.MaxTypes)})
	}
	for _, t := range f.Types {
		if fault := contract.NameFault(t); fault != "" {
			bad = append(bad, contract.Violation{Field: "types", Reason: contract.ReasonInvalidArgumentField,
				Description: "have " + contract.Quote(t) + ", which " + fault})
		}
	}
	return bad
}

// add counts an event that is given.
func (w *windowPlace) add(r *storage.Record) {
	w.count++
	w.digest = contract.WindowDigest(w.digest, &r.Event, r.RecordDigest, r.RunSeq, r.PersistedAt, r.ImportedAt, r.ChainDigest)
}

// windowAnswer is what a window's answer is true of.
type windowAnswer struct {
	positions storage.PositionRange
	// through is the time at or before which no event will ever be stamped again. It goes no
	// further than the window, so that a closed window has one answer.
	through int64
}

func (a *windowAnswer) closed(w *window) bool { return w.to <= a.through }

// closeWindow returns the positions of a window as of now, once this node knows all of it: for one
// that ends in the past, no leader is asked where this node has seen a later stamp; else the leader
// closes the window (READ-4, D7).
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
