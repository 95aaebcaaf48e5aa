package history

import (
	"strings"

	"runlog/proto/contract"
)

// Final is the state of a node after it has applied and folded everything.
type Final struct {
	Node string
	// Records are the records of all runs, in commit order.
	Records []Record
	// Hashes are the rolling hashes that the node had at any time. The hashes of a node that is
	// gone may be added to another one's.
	Hashes []AppliedHash
	// Trees are the roots of the tree of records that the node had at any time.
	Trees []TreeRoot
	// Snapshots are the node's newest snapshots, all acknowledged.
	Snapshots []Snapshot
	// Windows are earlier queries that were asked of this node again.
	Windows []Window
}

// Record is an event as a node stores it.
type Record struct {
	Run         string `json:"run"`
	RunSeq      uint64 `json:"runSeq"`
	PersistedAt int64  `json:"persistedAt"` // nanoseconds since 1970
	// Position is that of its proposal. 0: unknown; then stamps tell proposals apart.
	Position uint64 `json:"position,omitempty"`
	EventID  string `json:"eventId"`
	Key      string `json:"key"`
	// Content is made by the same rule as that of Event.
	Content      Digest `json:"content,omitzero"`
	RecordDigest Digest `json:"recordDigest"`
	ChainDigest  Digest `json:"chainDigest"`

	// The fields that windows filter by and digest. Absent says which of them was inherited
	// (ENV-1).
	TenantID      string          `json:"tenantId,omitempty"`
	ProjectID     string          `json:"projectId,omitempty"`
	EnvironmentID string          `json:"environmentId,omitempty"`
	PlanID        string          `json:"planId,omitempty"`
	PlanVersion   string          `json:"planVersion,omitempty"`
	StepID        string          `json:"stepId,omitempty"`
	Type          string          `json:"type,omitempty"`
	Absent        contract.Absent `json:"absent,omitempty"`

	// Body is for the caller's Fold, in any form. It is not compared.
	Body []byte `json:"body,omitempty"`
}

// QueuedRuns begins the names of runs that go through a queue. The nodes append to them too, and
// what clients append to them is checked elsewhere.
const QueuedRuns = "queued-"

// ofCluster reports whether the nodes append to a run, so that the history does not have all of its
// appends (SEC-7, QUE-1).
func ofCluster(run string) bool {
	return strings.HasPrefix(run, "runlog.access/") || strings.HasPrefix(run, QueuedRuns)
}

// AppliedHash is the rolling hash of a node when it had applied up to an index.
type AppliedHash struct {
	Index uint64 `json:"index"`
	Hash  Digest `json:"hash"`
}

// TreeRoot is the root of a node's tree of records when it had so many.
type TreeRoot struct {
	Size int64  `json:"size"`
	Root Digest `json:"root"`
}

// Fold folds a run's records, which start with runSeq 1. It returns a snapshot's digest for each
// watermark in at, which rise and are among the runSeqs.
type Fold func(records []*Record, at []uint64) ([]Folded, error)

// Folded is what a snapshot must be equal to.
type Folded struct {
	Digest Digest
	Status string // of the run; empty is not compared
}
