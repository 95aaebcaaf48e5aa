package storage

import (
	"crypto/sha256"
	"encoding/binary"
)

// advance chains the applied entry and what it did to its runs into the rolling hash, which is
// equal on every node at the same index, or the nodes have diverged.
func advance(a *Applied, index, term uint64, stamp int64, nextRun, events uint64, crc uint32, effects []byte) *Applied {
	b := append(make([]byte, 0, 80+len(effects)), a.RollingHash[:]...)
	b = binary.BigEndian.AppendUint64(b, index)
	b = binary.BigEndian.AppendUint64(b, uint64(stamp))
	b = binary.BigEndian.AppendUint64(b, nextRun)
	b = binary.BigEndian.AppendUint64(b, events)
	b = binary.BigEndian.AppendUint32(b, crc)
	b = append(b, effects...)
	return &Applied{
		Index: index, Term: term, PersistedAt: stamp, Events: events,
		RollingHash: sha256.Sum256(b), NextRun: nextRun, Incarnation: a.Incarnation, FencesAbove: a.FencesAbove,
		Held: a.Held, HeldSince: a.HeldSince, ReceiptKey: a.ReceiptKey,
	}
}
