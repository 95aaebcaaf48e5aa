package storage

import "runlog/storage/internal/record"

// Indexed tells how many receipts of a run in memory are indexed, -1 when each key is looked up,
// and how many were looked up so far.
func (s *Store) Indexed(runID string) (receipts, asked int) {
	r := s.active.runs[runID]
	if r == nil || r.unindexed() {
		receipts = -1
	} else {
		receipts = len(r.receipts)
	}
	if r != nil {
		asked = r.asked
	}
	return receipts, asked
}

// ActiveSizes is what ActiveMemory should be: the sizes of the runs, counted again.
func (s *Store) ActiveSizes() (bytes int) {
	for _, r := range s.active.runs {
		bytes += r.size()
	}
	return bytes
}

// Recent tells what apply's cache says of a row of a machine, and what the database has.
func (s *Store) Recent(key []byte) (cached []byte, known bool, row []byte, err error) {
	cached, known = s.recent.Get(key)
	row, err = record.GetRow(s.db(), key)
	return cached, known, row, err
}

// RecentBytes is about what the cache of rows takes in memory.
func (s *Store) RecentBytes() int { return s.recent.Bytes() }
