package tail

import (
	"context"
	"errors"
	"iter"

	"runlog/storage"
)

// Follower reads the log again and again from where it ended: through a Tail, and from the store
// where it was overtaken. One goroutine uses it.
type Follower struct {
	tail *Tail
	own  *storage.Ahead
}

// Follow returns a follower. It must be closed. Its records are Facts, but some are whole.
func (t *Tail) Follow() *Follower {
	return &Follower{tail: t, own: t.store.FollowAhead(storage.Facts)}
}

// Close ends the reading.
func (f *Follower) Close() { f.own.Close() }

// Log is that of a storage.Follower.
func (f *Follower) Log(after storage.Position) iter.Seq2[*storage.Commit, error] {
	return func(yield func(*storage.Commit, error) bool) {
		applied := f.tail.store.Applied()
		for at := after; at < applied.Position(); {
			// The context would end the wait for another reader, which is short.
			b, err := f.tail.Next(context.Background(), at)
			if errors.Is(err, ErrOvertaken) {
				f.own.Log(at)(yield)
				return
			}
			f.own.Close()
			if err != nil {
				yield(nil, err)
				return
			}
			if b == nil || !b.each(at, yield) {
				return
			}
			at = b.To
		}
	}
}

// each yields the commits behind a position.
func (b *Batch) each(after storage.Position, yield func(*storage.Commit, error) bool) bool {
	for _, c := range b.Commits {
		if c.Position > after && !yield(c, nil) {
			return false
		}
	}
	return true
}
