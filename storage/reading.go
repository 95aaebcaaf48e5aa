package storage

import "runlog/storage/internal/read"

// Run returns a run, or *RunNotFoundError.
func (s *Store) Run(runID string) (*Run, error) { return read.FindRun(s.directory.Acquire, runID) }

// View opens a run for reading, or returns *RunNotFoundError.
func (s *Store) View(runID string) (*View, error) { return read.OpenView(s.directory.Acquire, runID) }

// First returns a run and its event with runSeq 1, as of one moment, or *RunNotFoundError. The
// event is nil if the run has none. It is of Facts. First costs less than a View.
func (s *Store) First(runID string) (*Run, *Record, error) {
	return read.FindFirst(s.directory.Acquire, runID)
}

// Follow returns a follower of the log.
func (s *Store) Follow(detail Detail) *Follower { return read.Follow(s.directory.Acquire, detail) }

// FollowAhead returns a follower of the log that may read ahead. It must be closed.
func (s *Store) FollowAhead(detail Detail) *Ahead {
	applied := func() Position { return s.applied.Load().Position() }
	return read.FollowAhead(s.directory.Acquire, applied, detail)
}

// PositionRange returns the positions of the proposals that were stamped from one time on and
// before another, in nanoseconds since 1970, as far as the log is applied. Times are those of
// proposals: an imported event counts from its import.
//
// No event will be stamped at or before completeThrough any more, since stamps rise (APP-5). If
// completeThrough is not before the end of the window, the range is the same forever and on every
// node (READ-4).
func (s *Store) PositionRange(from, to int64) (st PositionRange, completeThrough int64, err error) {
	return read.PositionRangeOf(s.directory.Acquire, from, to)
}

// StampUpTo returns the stamp of the last proposal up to a position, 0 if there is none.
func (s *Store) StampUpTo(position Position) (int64, error) {
	return read.StampUpTo(s.directory.Acquire, position)
}

// OpenWindow returns a reader of a range that begins at a cursor. The caller must close it.
func (s *Store) OpenWindow(st PositionRange, filter WindowFilter, at WindowCursor) (*WindowReader, error) {
	return read.OpenWindow(s.directory.Acquire, st, filter, at)
}

// Heads takes a snapshot of the heads of all runs. Each change is reported to one call alone: a
// caller that drops Changed never hears of it again.
func (s *Store) Heads() (*Heads, error) {
	return read.OpenHeads(s.directory.Acquire, &s.changes, s.opts.Cluster)
}
