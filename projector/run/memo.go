package run

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
)

// memo caches what is computed from a snapshot. It lives as long as the snapshot and is no part of
// its value.
type memo struct {
	of       *Snapshot // A copy of the snapshot has another address and no memo.
	digested sync.Once
	digest   [sha256.Size]byte
	encoded  atomic.Pointer[[]byte]
}

// Digest returns SHA-256 over the canonical form (PRJ-1).
func (s *Snapshot) Digest() [sha256.Size]byte {
	if s.memo == nil || s.memo.of != s {
		return sha256.Sum256(s.CanonicalJSON())
	}
	s.memo.digested.Do(func() { s.memo.digest = sha256.Sum256(s.CanonicalJSON()) })
	return s.memo.digest
}

// Encoded returns a place for an encoding of the snapshot that is served many times, or nil when
// the snapshot has no memo. The caller that stores an encoding there bounds the memory it takes.
func (s *Snapshot) Encoded() *atomic.Pointer[[]byte] {
	if s.memo == nil || s.memo.of != s {
		return nil
	}
	return &s.memo.encoded
}
