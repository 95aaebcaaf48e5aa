package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	"runlog/server/cluster"
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

// window is a question for the events of a stretch of time, and how far it has been answered (READ-3).
type window struct {
	from, to int64 // nanoseconds since 1970; to 0: until now
	filter   storage.WindowFilter
	asked    []byte // a hash of the question
	at       windowPlace
}

// windowPlace is where an answer goes on: behind the events that were given, of which it has the number and the digest.
type windowPlace struct {
	cursor storage.WindowCursor
	count  uint64
	digest contract.Digest
}

// parseWindow checks a question, and names all that is wrong with it.
func (s *Server) parseWindow(req windowRequest) (*window, error) {
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
	if w.from, err = bound("from", req.GetFrom()); err != nil {
		fault("from", "is not a time between 1970 and 2262")
	}
	if w.to, err = bound("to", req.GetTo()); err != nil {
		fault("to", "is not a time between 1970 and 2262")
	}
	// Stamps go on above the last one, whatever clocks say (APP-5).
	applied := s.store.Applied()
	switch now := max(s.opts.Clock().UnixNano(), applied.PersistedAt); {
	case len(bad) > 0:
	case w.from > now+int64(maxClockAhead):
		fault("from", fmt.Sprintf("lies ahead: it is %s now, and nothing can have been persisted in the window yet",
			time.Unix(0, now).UTC().Format(time.RFC3339)))
	case req.GetTo() != nil && w.from >= w.to:
		fault("to", "is not after from: the window is empty; from is inclusive, to is exclusive")
	}
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	w.asked = w.hash()
	if token := req.GetPageToken(); token != "" {
		return w, w.resume(s.clusterID, token)
	}
	return w, nil
}

// maxClockAhead is how far a caller's clock may be ahead of this node's.
const maxClockAhead = 10 * time.Second

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
	if n := len(f.Types); n > maxTypes {
		return append(bad, contract.Violation{Field: "types", Reason: contract.ReasonInvalidArgumentField,
			Description: fmt.Sprintf("are %d, at most %d", n, maxTypes)})
	}
	for _, t := range f.Types {
		if fault := contract.NameFault(t); fault != "" {
			bad = append(bad, contract.Violation{Field: "types", Reason: contract.ReasonInvalidArgumentField,
				Description: "have " + contract.Quote(t) + ", which " + fault})
		}
	}
	return bad
}

// hash tells questions apart. How pages are cut and payloads shown is no part of one.
func (w *window) hash() []byte {
	f := &w.filter
	parts := [][]byte{
		[]byte("runlog/window/1"), binary.BigEndian.AppendUint64(nil, uint64(w.from)), binary.BigEndian.AppendUint64(nil, uint64(w.to)),
		[]byte(f.TenantID), []byte(f.ProjectID), []byte(f.EnvironmentID), []byte(f.PlanID), []byte(f.RunID), []byte(f.StepID),
	}
	for _, t := range f.Types {
		parts = append(parts, []byte(t))
	}
	return sum(parts...)
}

// A window's token holds for as long as the cluster, at every node: what it names lies where it lies.
//
//	kind:1 question:8 to:8 position chunk block event count digest:32 check:8
//
// The numbers in the middle are uvarints. Check is a hash of the cluster and of all before it; it tells mistakes, and keeps
// no secret.
func (w *window) token(id storage.ClusterID) string {
	b := append([]byte{tokenWindow}, w.asked...)
	b = binary.BigEndian.AppendUint64(b, uint64(w.to))
	c := &w.at.cursor
	for _, n := range [...]uint64{uint64(c.Position), uint64(c.Chunk), uint64(c.Block), uint64(c.Event), w.at.count} {
		b = binary.AppendUvarint(b, n)
	}
	b = append(b, w.at.digest[:]...)
	b = append(b, sum([]byte("runlog/window token/1"), id[:], b)...)
	return base64.RawURLEncoding.EncodeToString(b)
}

func (w *window) resume(id storage.ClusterID, token string) error {
	const header = 1 + sumBytes + 8
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < header+len(contract.Digest{})+sumBytes || b[0] != tokenWindow {
		return invalid("pageToken", "is not a token of a window: pass on nextPageToken or resumeToken as you got it"+beginAnew)
	}
	end := len(b) - sumBytes
	if !bytes.Equal(b[end:], sum([]byte("runlog/window token/1"), id[:], b[:end])) {
		return invalid("pageToken", "was changed on the way, or is of another cluster: pass on nextPageToken or resumeToken as you got it"+beginAnew)
	}
	if !bytes.Equal(b[1:1+sumBytes], w.asked) {
		return invalid("pageToken", "is of another query: send the window and the filter with which that one began"+beginAnew)
	}
	w.to = int64(binary.BigEndian.Uint64(b[1+sumBytes:]))
	rest := b[header : end-len(w.at.digest)]
	var n [5]uint64
	for i := range n {
		width := 0
		if n[i], width = binary.Uvarint(rest); width <= 0 {
			return invalid("pageToken", "is not a token of a window"+beginAnew)
		}
		rest = rest[width:]
	}
	w.at = windowPlace{
		cursor: storage.WindowCursor{Position: storage.Position(n[0]), Chunk: uint32(n[1]), Block: uint32(n[2]), Event: uint32(n[3])},
		count:  n[4], digest: contract.Digest(b[end-len(w.at.digest) : end]),
	}
	return nil
}

// add counts an event that is given.
func (w *windowPlace) add(r *storage.Record) {
	w.count++
	w.digest = contract.WindowDigest(w.digest, &r.Event, r.RecordDigest, r.RunSeq, r.PersistedAt, r.ImportedAt, r.ChainDigest)
}

// windowAnswer is what a window's answer is true of.
type windowAnswer struct {
	stretch storage.Stretch
	// through is the time at or before which no event will ever be stamped again. It goes no further than the window, so
	// that a closed window has one answer.
	through int64
}

func (a *windowAnswer) closed(w *window) bool { return w.to <= a.through }

// closeWindow returns the stretch of a window as of now, once this node knows all of it: for one that ends in the past, no
// leader is asked where this node has seen a later stamp; else the leader closes the window (READ-4, D7).
func (s *Server) closeWindow(ctx context.Context, w *window) (a windowAnswer, err error) {
	if now := s.store.Applied(); w.to == 0 || w.to > now.PersistedAt {
		var position storage.Position
		err := s.askLeader(ctx, func(reign *cluster.Reign) error {
			at, to, err := s.cluster.CloseThrough(ctx, reign, w.to)
			if err == nil {
				position, w.to = at, to
			}
			return err
		})
		if err == nil {
			err = s.awaitPosition(ctx, position)
		}
		if err != nil {
			return a, err
		}
	}
	a.stretch, a.through, err = s.store.Stretch(w.from, w.to)
	a.through = min(a.through, w.to)
	return a, err
}
