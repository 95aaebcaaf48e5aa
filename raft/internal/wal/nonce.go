package wal

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	hraft "github.com/hashicorp/raft"
)

// EntryID names an entry of the log. Raft takes two entries of the same index and term for the
// same. That holds as long as a term has one leader, and a voter that has forgotten its vote can
// give it two. So each leader draws a nonce for each term, and all entries that it makes have it
// (D3).
type EntryID struct {
	Index, Term uint64
	// Nonce is 0 if it is not known.
	Nonce uint64
}

// Conflicts reports whether two different entries have the same index and term: the term has had
// two leaders.
func (p EntryID) Conflicts(q EntryID) bool {
	return p.Index == q.Index && p.Term == q.Term && unlike(p.Nonce, q.Nonce)
}

func unlike(a, b uint64) bool { return a != 0 && b != 0 && a != b }

// The nonce of an entry, and that of the entry before it, are in what hashicorp/raft calls its
// Extensions: they are stored, and go to followers, with the entry.
//
//	format version, 1  1
//	nonce              8
//	nonce before       8
//
// Integers are big endian. A leader that tells only one nonce leaves out the second.
const (
	nonceFormat = 1
	nonceSize   = 1 + 8
	noncesSize  = nonceSize + 8
)

// IDOf returns the identity of an entry.
func IDOf(l *hraft.Log) EntryID { return EntryID{l.Index, l.Term, ParseNonce(l.Extensions)} }

// ParseNonce returns the nonce in what FormatNonce, or an entry, has; 0 if it has none.
func ParseNonce(b []byte) uint64 {
	if len(b) != nonceSize && len(b) != noncesSize || b[0] != nonceFormat {
		return 0
	}
	return binary.BigEndian.Uint64(b[1:])
}

// FormatNonce is the inverse of ParseNonce.
func FormatNonce(nonce uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, noncesSize), nonceFormat), nonce)
}

// FormatNonces returns the Extensions of an entry.
func FormatNonces(nonce, before uint64) []byte {
	return binary.BigEndian.AppendUint64(FormatNonce(nonce), before)
}

// nonceBefore returns the nonce of the entry before one.
func nonceBefore(l *hraft.Log) uint64 {
	if len(l.Extensions) != noncesSize {
		return 0
	}
	return binary.BigEndian.Uint64(l.Extensions[nonceSize:])
}

// Received prepares an entry of another node for StoreLogs, which draws nonces for entries without
// any. An entry of an earlier version has no known nonce, and keeps that.
func Received(l *hraft.Log) error {
	switch {
	case len(l.Extensions) == 0:
		l.Extensions = FormatNonces(0, 0)
	case len(l.Extensions) != noncesSize || l.Extensions[0] != nonceFormat:
		return fmt.Errorf("raft: entry %d has extensions of %d bytes, which this build does not know",
			l.Index, len(l.Extensions))
	}
	return nil
}

// drawn is the nonce of this node in a term. Log.writes guards it.
type drawn struct{ term, nonce uint64 }

// sign gives nonces to the entries that this node makes, behind the entry before them. Those of
// another leader have theirs. hashicorp/raft hands out an entry only after it is stored.
func (d *drawn) sign(logs []*hraft.Log, before EntryID) {
	for _, l := range logs {
		if len(l.Extensions) == 0 {
			if d.nonce == 0 || d.term != l.Term {
				d.term, d.nonce = l.Term, draw()
			}
			l.Extensions = FormatNonces(d.nonce, before.Nonce)
		}
		before = IDOf(l)
	}
}

// draw returns a random number that is not 0.
func draw() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(1, binary.BigEndian.Uint64(b[:]))
}
