package projector

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"

	"runlog/storage"
)

// memo is what was worked out from a snapshot for all who ask for it. It goes when the snapshot
// goes, and takes no part in what the snapshot says.
type memo struct {
	of       *Snapshot // a copy, which may become another snapshot, has none
	digested sync.Once
	digest   [sha256.Size]byte
	encoded  atomic.Pointer[[]byte]
}

// Digest returns SHA-256 over the canonical form (PRJ-1).
func (s *Snapshot) Digest() [sha256.Size]byte {
	if s.kept == nil || s.kept.of != s {
		return sha256.Sum256(s.CanonicalJSON())
	}
	s.kept.digested.Do(func() { s.kept.digest = sha256.Sum256(s.CanonicalJSON()) })
	return s.kept.digest
}

// Encoded is a place for a form of the snapshot in which it is served again and again. The
// projector only keeps it; who puts something there bounds how much that is. nil: nothing is kept
// of this snapshot.
func (s *Snapshot) Encoded() *atomic.Pointer[[]byte] {
	if s.kept == nil || s.kept.of != s {
		return nil
	}
	return &s.kept.encoded
}

// Live returns the snapshot of a run from memory, if it has everything up to a position; nil when
// that is not known.
func (p *Projector) Live(runID string, at storage.Position) *Snapshot {
	p.live.RLock()
	defer p.live.RUnlock()
	if p.Position() < at {
		return nil
	}
	return p.live.runs.get(runID)
}
