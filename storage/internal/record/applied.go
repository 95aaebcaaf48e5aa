package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
)

// ErrForeign means that a log entry, a checkpoint or the store itself belongs to another cluster
// (D1).
var ErrForeign = errors.New("storage: entry of another cluster")

// Applied is how far a store is. It is written in the same batch as each proposal's effects (D2).
type Applied struct {
	Index       uint64   // of the last applied entry; 0: none
	Term        uint64   // of that entry
	PersistedAt int64    // the last stamp, nanoseconds; 0: none
	Events      uint64   // stored so far
	RollingHash [32]byte // over every applied entry

	NextRun uint64 // number of the next run that is made, from 1

	Incarnation Incarnation

	// FencesAbove is below every fence that this cluster gives, and above those of the clusters
	// whose backups it continues from. 0: it continues from none.
	FencesAbove uint64

	// Held: the cluster was restored, and leases no run and delivers no event until it is released.
	Held bool
	// HeldSince is the stamp of the first entry that the held cluster has applied; 0: it is not
	// held, or has applied none.
	HeldSince int64

	// ReceiptKey is that of the first append that was applied, and never changes.
	ReceiptKey ReceiptKey
}

// Position of the last applied entry.
func (a *Applied) Position() Position { return Position(a.Index) }

// Runs is how many runs there are, removed ones included.
func (a *Applied) Runs() uint64 { return a.NextRun - 1 }

// Stamp returns the last stamp applied as a UTC time; zero on an empty log.
func (a *Applied) Stamp() time.Time { return Time(a.PersistedAt) }

// FencesAfter is FencesAbove of a cluster that continues from a backup: the number of backups
// behind each other that it continues from, then 20 bits of a random id, and 20 bits of 0, from
// which the fences of a run rise. So two clusters that continue from one backup give different
// fences too. They stay below 2^53, and are exact in every JSON.
func FencesAfter(before uint64, random []byte) uint64 {
	return (before>>40+1)<<40 | uint64(binary.BigEndian.Uint32(random)>>12)<<20
}

// Fence is the fence of a run as it counts in this cluster. No request has one of an earlier
// cluster: the run then has the first one of this cluster, which no lease has.
func (a *Applied) Fence(stored uint64) uint64 {
	if stored == 0 {
		return 0
	}
	return max(stored, a.FirstFence())
}

// FirstFence is the fence of a run that was requested, and not leased in this cluster.
func (a *Applied) FirstFence() uint64 { return a.FencesAbove + 1 }

// AppliedRow encodes the applied state of a store of a cluster.
func AppliedRow(a *Applied, cluster ClusterID) ([]byte, error) {
	m := &recordv1.Applied{
		Index: a.Index, Term: a.Term, PersistedAt: a.PersistedAt, NextRunNo: a.NextRun,
		Events: a.Events, RollingHash: a.RollingHash[:], ClusterId: cluster[:], FencesAbove: a.FencesAbove, Held: a.Held, HeldSince: a.HeldSince,
	}
	if a.Incarnation != cluster.First() {
		m.Incarnation = a.Incarnation[:]
	}
	if a.ReceiptKey != (ReceiptKey{}) {
		m.ReceiptKey = a.ReceiptKey[:]
	}
	return Deterministic.Marshal(m)
}

// ReadApplied reads the applied state, and refuses that of another cluster with ErrForeign. A
// database without one is new.
func ReadApplied(db pebble.Reader, o *pebble.IterOptions, cluster ClusterID) (_ *Applied, err error) {
	it, err := db.NewIter(o)
	if err != nil {
		return nil, fmt.Errorf("storage: read applied state: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.SeekGE(keys.Applied) || len(it.Key()) != len(keys.Applied) || it.Key()[0] != keys.Applied[0] {
		return &Applied{NextRun: 1, Incarnation: cluster.First()}, it.Error()
	}
	var m recordv1.Applied
	if err := proto.Unmarshal(it.Value(), &m); err != nil {
		return nil, fmt.Errorf("%w: applied state: %w", ErrRow, err)
	}
	if len(m.ClusterId) != len(cluster) || ClusterID(m.ClusterId) != cluster {
		return nil, fmt.Errorf("%w: the store belongs to cluster %x, not to %x", ErrForeign, m.ClusterId, cluster)
	}
	if len(m.RollingHash) != 32 {
		return nil, fmt.Errorf("%w: rolling hash of %d bytes", ErrRow, len(m.RollingHash))
	}
	a := &Applied{
		Index: m.Index, Term: m.Term, PersistedAt: m.PersistedAt, Events: m.Events,
		RollingHash: [32]byte(m.RollingHash), NextRun: m.NextRunNo, FencesAbove: m.FencesAbove, Held: m.Held, HeldSince: m.HeldSince,
		Incarnation: cluster.First(),
	}
	switch len(m.Incarnation) {
	case 0:
	case len(a.Incarnation):
		a.Incarnation = Incarnation(m.Incarnation)
	default:
		return nil, fmt.Errorf("%w: incarnation of %d bytes", ErrRow, len(m.Incarnation))
	}
	if a.ReceiptKey, err = parseReceiptKey(m.ReceiptKey); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRow, err)
	}
	return a, nil
}

// Membership is the members of the group, as the log named them last. The store does not know what
// the data means.
type Membership struct {
	Index uint64 // of the log entry; 0: none was applied
	Data  []byte // of that entry
}

// MembershipRow encodes the membership that the log entry at index carries.
func MembershipRow(index uint64, data []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, index), data...)
}

// ReadMembership reads the membership. It is zero where no entry of the log was one.
func ReadMembership(r pebble.Reader) (Membership, error) {
	row, closer, err := r.Get(keys.Membership)
	if errors.Is(err, pebble.ErrNotFound) {
		return Membership{}, nil
	}
	if err != nil {
		return Membership{}, fmt.Errorf("storage: read membership: %w", err)
	}
	if len(row) < 8 {
		return Membership{}, errors.Join(fmt.Errorf("%w: membership of %d bytes", ErrRow, len(row)), closer.Close())
	}
	m := Membership{Index: binary.BigEndian.Uint64(row), Data: append([]byte(nil), row[8:]...)}
	return m, closer.Close()
}
