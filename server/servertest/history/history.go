package history

import (
	"encoding/hex"
	"fmt"
	"slices"

	"runlog/proto/contract"
)

// History is what clients saw, in the order of their calls. Times are nanoseconds of one clock.
type History struct {
	Ops []Op
	// Subscriptions are those whose Acts were recorded, in the order of their records.
	Subscriptions []Subscription
	Acts          []Act
}

// Op is one call and its answer. One of Appends, Read, Snapshot, Mark and Window is set.
type Op struct {
	// Client is the caller; for a Mark, the subscriber. A client may have several calls under way.
	Client string `json:"client"`
	// Node is the node that was called, for the report.
	Node string `json:"node,omitempty"`
	// Call is when the request left, and Return when the answer had come. Without an answer, Return
	// means nothing.
	Call   int64 `json:"call"`
	Return int64 `json:"return,omitempty"`

	// Appends has several elements in a batch. Each is atomic, and has an outcome of its own
	// (APP-3).
	Appends  []Append  `json:"appends,omitempty"`
	Read     *Read     `json:"read,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Mark     *Mark     `json:"mark,omitempty"`
	Window   *Window   `json:"window,omitempty"`
}

// Status is what a client may conclude.
type Status string

const (
	// Unknown is the status of a call without an answer: it may have had its effect, may have it
	// later, or never.
	Unknown Status = ""
	// Acknowledged is a success.
	Acknowledged Status = "acknowledged"
	// Refused is an error after which nothing was stored and nothing will be (docs/errors.md).
	Refused Status = "refused"
)

// Outcome is how a call ended.
type Outcome struct {
	Status Status          `json:"status,omitempty"`
	Reason contract.Reason `json:"reason,omitempty"` // of the error, if there was one
}

// Failed is the outcome of a call that ended with an error: refused if the contract says so, else
// unknown.
func Failed(reason contract.Reason) Outcome {
	if reason.Info().Stored == contract.StoredMaybe {
		return Outcome{Reason: reason}
	}
	return Outcome{Status: Refused, Reason: reason}
}

func (o *Outcome) refusedFor(reason contract.Reason) bool {
	return o.Status == Refused && o.Reason == reason
}

// Append is an append to one run.
type Append struct {
	Run    string  `json:"run"`
	Events []Event `json:"events"` // 1 to 1,000
	// Expected is expectedLastSeq; nil: none.
	Expected *uint64 `json:"expected,omitempty"`
	// Resent: the client's library may have sent it several times, or together with other appends.
	// Its answer may call a duplicate what an earlier try has stored, and LastSeq may be that of a
	// later moment until the answer.
	Resent bool `json:"resent,omitempty"`
	// Queue names a queue of the client's library that keeps the order of calls: those of one run,
	// queued at different times, are stored in the order of their calls. Empty: none.
	Queue string `json:"queue,omitempty"`

	Outcome
	// LastSeq is the run's last runSeq in the answer, or in the error SEQUENCE_CONFLICT.
	LastSeq uint64 `json:"lastSeq,omitempty"`
	// Results answer for the events, in their order; only if acknowledged.
	Results []Result `json:"results,omitempty"`
}

// Event is an event as a client sent it.
type Event struct {
	// idempotencyKey, the derived one where the client sends none
	Key     string `json:"key"`
	EventID string `json:"eventId,omitempty"` // UUID text; empty: the server makes one
	// Content is a digest of what IDM-7 compares, made by the same rule as that of Record.
	Content Digest `json:"content,omitzero"`
}

// Result is the answer for one event.
type Result struct {
	EventID     string `json:"eventId"`
	RunSeq      uint64 `json:"runSeq"`
	PersistedAt int64  `json:"persistedAt"` // nanoseconds since 1970
	Idempotent  bool   `json:"idempotent,omitempty"`
	Diverged    bool   `json:"diverged,omitempty"`
}

// Read is a read of a run's events, of all types. A run that is not found is a refused read with
// the reason RUN_NOT_FOUND.
type Read struct {
	Run      string `json:"run"`
	AfterSeq uint64 `json:"afterSeq,omitempty"`
	// Local may be older than what was acknowledged; else the read is linearizable (READ-2).
	Local  bool   `json:"local,omitempty"`
	MinSeq uint64 `json:"minSeq,omitempty"`

	Outcome
	// LastSeq is the run's last runSeq in the answer, or that of its last event, or else AfterSeq.
	LastSeq uint64 `json:"lastSeq,omitempty"`
	// More: the answer ends before LastSeq, with a token.
	More   bool   `json:"more,omitempty"`
	Events []Seen `json:"events,omitempty"`
}

// Seen is an event in the answer to a read.
type Seen struct {
	RunSeq      uint64 `json:"runSeq"`
	PersistedAt int64  `json:"persistedAt"`
	EventID     string `json:"eventId"`
	Key         string `json:"key"`
}

// Snapshot is a read of a run's snapshot, or one in a Final. A run that is not found is a refused
// one with the reason RUN_NOT_FOUND.
type Snapshot struct {
	Run string `json:"run"`
	// Local may be older than what was acknowledged; else the read is linearizable.
	Local  bool   `json:"local,omitempty"`
	MinSeq uint64 `json:"minSeq,omitempty"`
	// AsOfSeq is the requested runSeq; 0: the newest.
	AsOfSeq uint64 `json:"asOfSeq,omitempty"`

	Outcome
	LastEventSeq uint64 `json:"lastEventSeq,omitempty"`
	Digest       Digest `json:"digest,omitzero"`
	RunStatus    string `json:"runStatus,omitempty"`
}

// Mark is a watermark that a subscriber received. A subscriber (Op.Client) is one consumer of a
// watch; it stays the same when its stream is cut and resumed.
type Mark struct {
	Run          string `json:"run"`
	LastEventSeq uint64 `json:"lastEventSeq"`
}

// Window is a query for an audit window with all its pages, or one in a Final. Times are
// nanoseconds since 1970.
type Window struct {
	From   int64  `json:"from"`
	To     int64  `json:"to"` // as the answer said
	Filter Filter `json:"filter,omitzero"`

	Outcome
	Events          []string `json:"events,omitempty"` // event ids, as they came
	Count           uint64   `json:"count,omitempty"`
	Digest          Digest   `json:"digest,omitzero"`
	CompleteThrough int64    `json:"completeThrough,omitempty"` // of the last page
	Closed          bool     `json:"closed,omitempty"`
}

// Filter selects the records that match all of its non-empty fields.
type Filter struct {
	TenantID      string   `json:"tenantId,omitempty"`
	ProjectID     string   `json:"projectId,omitempty"`
	EnvironmentID string   `json:"environmentId,omitempty"`
	PlanID        string   `json:"planId,omitempty"`
	RunID         string   `json:"runId,omitempty"`
	StepID        string   `json:"stepId,omitempty"`
	Types         []string `json:"types,omitempty"` // any of them
}

// Match reports whether a record is selected.
func (f *Filter) Match(r *Record) bool {
	for _, field := range [...][2]string{
		{f.TenantID, r.TenantID}, {f.ProjectID, r.ProjectID}, {f.EnvironmentID, r.EnvironmentID},
		{f.PlanID, r.PlanID}, {f.RunID, r.Run}, {f.StepID, r.StepID},
	} {
		if field[0] != "" && field[0] != field[1] {
			return false
		}
	}
	return len(f.Types) == 0 || slices.Contains(f.Types, r.Type)
}

// Digest is a SHA-256; in text, hex. The zero Digest means that there is none.
type Digest [32]byte

// String returns the hex of the digest.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText returns the hex of the digest.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("history: a digest of %d characters, not %d", len(text), hex.EncodedLen(len(d)))
	}
	if _, err := hex.Decode(d[:], text); err != nil {
		return fmt.Errorf("history: digest: %w", err)
	}
	return nil
}

// kind names the kind of an op, for counts and reports; empty if it has none, or several.
func (o *Op) kind() string {
	kind, n := "", 0
	for _, k := range [...]struct {
		name string
		set  bool
	}{
		{"append", len(o.Appends) > 0}, {"read", o.Read != nil}, {"snapshot", o.Snapshot != nil},
		{"mark", o.Mark != nil}, {"window", o.Window != nil},
	} {
		if k.set {
			kind, n = k.name, n+1
		}
	}
	if n != 1 {
		return ""
	}
	return kind
}

// clone copies the fields that a caller fills in when the answer comes, and shares the others.
func (o Op) clone() Op {
	o.Appends = slices.Clone(o.Appends)
	o.Read = cloned(o.Read)
	o.Snapshot = cloned(o.Snapshot)
	o.Mark = cloned(o.Mark)
	o.Window = cloned(o.Window)
	return o
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
