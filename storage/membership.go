package storage

import (
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// ApplyMembership applies the log entry at index, which changed the members of the group. The store
// keeps the members (D2): a checkpoint for another node has to contain those of its own moment.
// Otherwise ApplyMembership works like Apply.
func (s *Store) ApplyMembership(index, term uint64, data []byte) error {
	if s.broken != nil {
		return s.broken
	}
	if index <= s.applied.Load().Index {
		return nil
	}
	if err := s.applyMembership(index, term, data); err != nil {
		s.broken = fmt.Errorf("entry %d: %w", index, err)
		return s.broken
	}
	return nil
}

func (s *Store) applyMembership(index, term uint64, data []byte) error {
	batch := s.db().NewBatch()
	defer func() { _ = batch.Close() }()
	if err := batch.Set(keys.Membership, record.MembershipRow(index, data), nil); err != nil {
		return err
	}
	last := s.applied.Load()
	sum := crc32.Checksum(data, record.Castagnoli)
	next := advance(last, index, term, last.PersistedAt, last.NextRun, last.Events, sum, nil)
	row, err := record.AppliedRow(next, s.opts.Cluster)
	if err != nil {
		return err
	}
	if err := batch.Set(keys.Applied, row, nil); err != nil {
		return err
	}
	if err := s.db().Apply(batch, pebble.NoSync); err != nil {
		return err
	}
	s.publish(next)
	return nil
}

// Membership returns the members of the group as of the applied index, or a little later.
func (s *Store) Membership() (Membership, error) {
	db, release, err := s.directory.Acquire()
	if err != nil {
		return Membership{}, err
	}
	defer release()
	return record.ReadMembership(db)
}
