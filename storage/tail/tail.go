package tail

import (
	"context"
	"errors"
	"iter"
	"sync"

	"runlog/storage"
)

// ErrOvertaken means that what lies behind the position is no longer here, or too far behind to
// begin with.
var ErrOvertaken = errors.New("tail: the reader was overtaken; read the store")

const (
	// A batch ends with the entry that reaches one of these.
	batchCommits = 1024
	batchEvents  = 1024
	batchBytes   = 512 << 10
	// near is how many positions behind the store a reader may be that an empty Tail begins with.
	near = 10_000
	// In addition to its payload, an event takes about eventBytes, and a commit about commitBytes.
	eventBytes  = 1 << 10
	commitBytes = 256
)

// Options of a Tail.
type Options struct {
	// Store has the log. Required.
	Store *storage.Store
	// Bytes bounds what is kept, about. Default: 16 MiB.
	Bytes int64
}

// Tail is a bounded ring of the commits that were read last. Its methods may be called by many
// goroutines.
type Tail struct {
	store *storage.Store
	most  int64

	mu struct {
		sync.Mutex
		batches []*Batch // that follow each other, the oldest first
		bytes   int64    // of them
		to      storage.Position
		// filling is closed when the reader that reads the store for all has ended; nil: none does.
		filling chan struct{}
		whole   func(*storage.Run) bool // nil: all records are Facts
	}
	// log reads ahead while the readers are far behind. The reader that has set filling uses it.
	log *storage.Ahead
}

// Batch has the commits of some entries.
type Batch struct {
	// The entries lie behind After, up to To.
	After, To storage.Position
	Commits   []*storage.Commit // in log order
	bytes     int64
}

// Bytes is about what the batch takes in memory.
func (b *Batch) Bytes() int64 { return b.bytes }

// New makes a Tail of nothing. It must be closed.
func New(opts Options) *Tail {
	t := &Tail{store: opts.Store, most: opts.Bytes, log: opts.Store.FollowAhead(storage.Facts)}
	if t.most == 0 {
		t.most = 16 << 20
	}
	t.log.WholeOf(t.isWhole)
	return t
}

// Close ends the reading. All readers must have ended.
func (t *Tail) Close() error {
	t.log.Close()
	return nil
}

// SetWhole says of which runs the records are decoded as a whole from now on, those of others as
// Facts; nil: of none. The function is called by any reader, and is quick.
func (t *Tail) SetWhole(whole func(*storage.Run) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.whole = whole
}

func (t *Tail) isWhole(r *storage.Run) bool {
	t.mu.Lock()
	whole := t.mu.whole
	t.mu.Unlock()
	return whole != nil && whole(r)
}

// Next returns the batch with the first entry behind a position, as of now; nil: there is none. The
// batch may begin before the position.
func (t *Tail) Next(ctx context.Context, after storage.Position) (*Batch, error) {
	for {
		applied := t.store.Applied()
		t.mu.Lock()
		b, err := t.find(after)
		if b != nil || err != nil || applied.Position() <= after {
			t.mu.Unlock()
			return b, err
		}
		filling := t.mu.filling
		if filling == nil {
			if t.mu.to != after || len(t.mu.batches) == 0 {
				if applied.Position()-after > near {
					t.mu.Unlock()
					return nil, ErrOvertaken
				}
				t.mu.batches, t.mu.bytes, t.mu.to = nil, 0, after
			}
			t.mu.filling = make(chan struct{})
			t.mu.Unlock()
			return t.fill(after)
		}
		t.mu.Unlock()
		select {
		case <-filling:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// find returns the batch with the first entry behind a position; nil: it is not read yet. The
// caller holds mu.
func (t *Tail) find(after storage.Position) (*Batch, error) {
	list := t.mu.batches
	if after >= t.mu.to {
		return nil, nil
	}
	if len(list) == 0 || after < list[0].After {
		return nil, ErrOvertaken
	}
	i := len(list) - 1 // Most readers are at the end.
	for list[i].After > after {
		i--
	}
	return list[i], nil
}

// fill reads the next batch for all. filling is set.
func (t *Tail) fill(after storage.Position) (*Batch, error) {
	b, err := Read(t.store, t.log, after, Limits{batchCommits, batchEvents, batchBytes})
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.mu.filling)
	t.mu.filling = nil
	if err != nil || b == nil {
		return nil, err
	}
	t.mu.batches, t.mu.to = append(t.mu.batches, b), b.To
	t.mu.bytes += b.bytes
	for t.mu.bytes > t.most && len(t.mu.batches) > 1 {
		t.mu.bytes -= t.mu.batches[0].bytes
		t.mu.batches[0] = nil // The array may stay for a while.
		t.mu.batches = t.mu.batches[1:]
	}
	return b, nil
}

// Limits end a batch with the entry that reaches one of them.
type Limits struct {
	Commits, Events int
	Bytes           int64
}

// Log is a follower of the store.
type Log interface {
	Log(after storage.Position) iter.Seq2[*storage.Commit, error]
}

var (
	_ Log = (*storage.Follower)(nil)
	_ Log = (*storage.Ahead)(nil)
	_ Log = (*Follower)(nil)
)

// Read reads a batch behind a position from the store, as of now; nil: there is none.
func Read(store *storage.Store, log Log, after storage.Position, most Limits) (*Batch, error) {
	applied := store.Applied() // First: the log has all up to it.
	b := &Batch{After: after, To: after}
	events, complete := 0, true
	full := func() bool {
		return len(b.Commits) >= most.Commits || events >= most.Events || b.bytes >= most.Bytes
	}
	for c, err := range log.Log(after) {
		if err != nil {
			return nil, err
		}
		if c.Position != b.To && full() {
			complete = false
			break
		}
		b.To = c.Position
		b.Commits = append(b.Commits, c)
		events += len(c.Records)
		b.bytes += commitBytes
		for i := range c.Records {
			b.bytes += int64(len(c.Records[i].Payload)) + eventBytes
		}
	}
	if complete { // Entries without commits count too.
		b.To = max(b.To, applied.Position())
	}
	if b.To == after {
		return nil, nil
	}
	return b, nil
}
