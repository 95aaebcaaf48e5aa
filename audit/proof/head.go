package proof

import (
	"encoding/binary"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
)

// headTag begins the canonical bytes of a run's head.
const headTag = "runlog/run-head/1\x00"

// RunHead is a run's leaf in a checkpoint: its identity and the end of its chain of records.
type RunHead struct {
	RunID, TenantID, ProjectID, EnvironmentID string
	// PlanID and PlanVersion of the run's first event, or of its creation.
	PlanID, PlanVersion string
	// CreatedAt is the creation of the run, in nanoseconds since 1970; of an imported run,
	// according to its first event.
	CreatedAt int64
	// LastSeq and PersistedAt are those of the last record; 0: no records.
	LastSeq     uint64
	PersistedAt int64
	// Chain is the chain digest of the last record (APP-11); zeros: no records.
	Chain contract.Digest
}

// AppendCanonical appends the canonical bytes of the head: the 18 bytes "runlog/run-head/1\x00";
// then runId, tenantId, projectId, environmentId, planId and planVersion, each a length (2) and its
// text; then createdAt (8), lastSeq (8), persistedAt (8) and the chain digest (32). Integers are
// big endian, times two's complement. No text is longer than 256 bytes.
func (h *RunHead) AppendCanonical(dst []byte) []byte {
	dst = append(dst, headTag...)
	for _, text := range [...]string{h.RunID, h.TenantID, h.ProjectID, h.EnvironmentID, h.PlanID, h.PlanVersion} {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(text)))
		dst = append(dst, text...)
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.CreatedAt))
	dst = binary.BigEndian.AppendUint64(dst, h.LastSeq)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.PersistedAt))
	return append(dst, h.Chain[:]...)
}

// Leaf returns the hash of the head as a leaf of the tree (RFC 9162 section 2.1.1): SHA-256 over a
// zero byte and the canonical bytes.
func (h *RunHead) Leaf() tlog.Hash {
	var stack [1024]byte
	return tlog.RecordHash(h.AppendCanonical(stack[:0]))
}
