package read

import (
	"iter"

	"runlog/storage/internal/record"
)

const (
	// aheadFrom is how many entries a reader must be behind for another goroutine to read for it.
	aheadFrom = 64
	// aheadEvents is about how much is read of one view of the store: while it is open, Pebble
	// keeps what it shows.
	aheadEvents = 100_000
	// A batch ends with the commit that reaches one of these, and so many may wait in addition to
	// the one that is made and the one that is used.
	batchEvents  = 1024
	batchBytes   = 512 << 10
	aheadBatches = 4
)

// Ahead is a Follower that, when its user is far behind, reads on on a goroutine of its own while
// the user works with what it has: to decode events costs nearly as much as to fold them. One
// goroutine uses it.
type Ahead struct {
	f       *Follower // the scan's, while there is one
	applied func() record.Position
	limit   int   // aheadEvents
	scan    *scan // nil: none is under way
}

// FollowAhead returns a follower of the log that may read ahead. It must be closed. applied says
// how far the store is.
func FollowAhead(acquire Acquire, applied func() record.Position, detail record.Detail) *Ahead {
	return &Ahead{f: Follow(acquire, detail), applied: applied, limit: aheadEvents}
}

// WholeOf is that of a Follower. It may be called by the goroutine that reads.
func (a *Ahead) WholeOf(whole func(*Run) bool) *Ahead {
	a.f.WholeOf(whole)
	return a
}

// Limit makes an Ahead begin again after so many events, for tests.
func Limit(a *Ahead, events int) { a.limit = events }

// Close ends the reading.
func (a *Ahead) Close() {
	if a.scan != nil {
		a.scan.cancel()
		a.scan = nil
	}
}

// Log is that of a Follower.
func (a *Ahead) Log(after record.Position) iter.Seq2[*Commit, error] {
	return Sequence(func(yield func(*Commit, error) bool) error { return a.log(after, yield) })
}

func (a *Ahead) log(after record.Position, yield func(*Commit, error) bool) error {
	if a.scan != nil && after < a.scan.passed {
		a.Close()
	}
	// A scan that an earlier call has begun may end before what is there now.
	for current := false; ; current = false {
		if a.scan == nil {
			if a.applied() < after+aheadFrom {
				return a.f.log(after, yield)
			}
			a.scan, current = a.f.scan(after, a.limit), true
		}
		s := a.scan
		for c := s.first(); c != nil; c = s.first() {
			if c.Position > after && !yield(c, nil) {
				return nil // and c is the first one again
			}
			s.pass(c)
		}
		a.scan = nil
		if s.err != nil || s.complete && current {
			return s.err
		}
		after = max(after, s.passed)
	}
}

// scan is a part of the log on its way from the goroutine that reads it.
type scan struct {
	batches chan []*Commit
	stop    chan struct{}
	rest    []*Commit       // of the batch at hand
	passed  record.Position // of the last commit that was used, or where the scan began

	// What follows is there once batches is closed.
	complete bool // it came to the end of the log
	err      error
}

// scan has the follower read until the end of a proposal, once it has so many events. Until the
// scan ends, the follower has no other user.
func (f *Follower) scan(after record.Position, limit int) *scan {
	s := &scan{batches: make(chan []*Commit, aheadBatches), stop: make(chan struct{}), passed: after}
	go func() {
		defer close(s.batches)
		s.read(f, limit)
	}()
	return s
}

func (s *scan) read(f *Follower, limit int) {
	var batch []*Commit
	events, size := 0, 0 // of the batch
	send := func() bool {
		limit -= events
		select {
		case s.batches <- batch:
			batch, events, size = nil, 0, 0
			return true
		case <-s.stop:
			return false
		}
	}
	last, whole := s.passed, true
	s.err = f.log(s.passed, func(c *Commit, _ error) bool {
		if c.Position != last && limit <= events {
			whole = false
			return false
		}
		last = c.Position
		batch = append(batch, c)
		events += max(1, len(c.Records))
		for i := range c.Records {
			size += len(c.Records[i].Payload)
		}
		if events >= batchEvents || size >= batchBytes {
			whole = send()
		}
		return whole
	})
	if s.complete = whole; len(batch) > 0 {
		send()
	}
}

// first returns the first commit that was not passed, nil at the end.
func (s *scan) first() *Commit {
	for len(s.rest) == 0 {
		batch, ok := <-s.batches
		if !ok {
			return nil
		}
		s.rest = batch
	}
	return s.rest[0]
}

// pass takes the first commit off.
func (s *scan) pass(c *Commit) { s.passed, s.rest = c.Position, s.rest[1:] }

// cancel ends the scan early.
func (s *scan) cancel() {
	close(s.stop)
	for range s.batches {
	}
}
