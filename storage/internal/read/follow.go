package read

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// Commit is what one proposal did to one run, in commit order.
type Commit struct {
	Position    record.Position
	PersistedAt int64 // nanoseconds
	Run         *Run
	// Records are the stored events, in runSeq order and, unless imported, without gaps. None: the
	// run was made, its metadata set, or a machine tells of it (Tx.Tell).
	Records []record.Record
	// Detail is that of Records.
	Detail record.Detail
	// Before is the run's chain digest before Records; zeros: they are its first ones.
	Before contract.Digest
	// Metadata is what the store has now of the run's metadata. It is set only of a commit that may
	// have changed it: one without events, or the first one of the run. nil: there is none.
	Metadata *record.Metadata
}

// AppendChain appends the chain digest of each record (APP-11). For records that are Facts it works
// them out, which costs four hashes a record.
func (c *Commit) AppendChain(dst []contract.Digest) []contract.Digest {
	before := c.Before
	for i := range c.Records {
		r := &c.Records[i]
		if c.Detail == record.Whole {
			dst = append(dst, r.ChainDigest)
			continue
		}
		e := r.Event
		if e.KeyDerived {
			e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID,
				e.Type, e.PlanID, e.PlanVersion)
		}
		_, digest := e.Digests(r.PayloadSalt, r.AppendedBy, r.Original)
		before = contract.ChainDigest(before, digest, r.RunSeq, r.PersistedAt)
		dst = append(dst, before)
	}
	return dst
}

// Follower reads the log in commit order, again and again from where it ended, and remembers the
// runs that it met. One goroutine uses it.
type Follower struct {
	acquire Acquire
	detail  record.Detail
	wanted  func(*Run) bool // nil: all are
	whole   func(*Run) bool // nil: detail holds for all
	runs    runCache
}

// Follow returns a follower of the log.
func Follow(acquire Acquire, detail record.Detail) *Follower {
	return &Follower{acquire: acquire, detail: detail}
}

// Only has the follower leave out the records of runs that are not wanted: their commits have none.
// wanted must not depend on what a Commit.Run lacks.
func (f *Follower) Only(wanted func(*Run) bool) *Follower {
	f.wanted = wanted
	return f
}

// WholeOf has the follower decode the records of some runs as a whole, whatever its detail is.
// whole must not depend on what a Commit.Run lacks.
func (f *Follower) WholeOf(whole func(*Run) bool) *Follower {
	f.whole = whole
	return f
}

// Log yields what was committed after a position, in commit order, as of now. Commits of one
// proposal follow each other and are all there. After an error nothing more comes.
//
// Commit.Run has what never changes of the run: no metadata (see Commit.Metadata), and nothing of
// its head.
func (f *Follower) Log(after record.Position) iter.Seq2[*Commit, error] {
	return Sequence(func(yield func(*Commit, error) bool) error { return f.log(after, yield) })
}

func (f *Follower) log(after record.Position, yield func(*Commit, error) bool) (err error) {
	if after == math.MaxUint64 {
		return nil
	}
	db, release, err := f.acquire()
	if err != nil {
		return err
	}
	defer release()
	snap := db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	rows := record.Rows{Reader: snap}
	defer func() { err = errors.Join(err, rows.Close()) }()
	it, err := snap.NewIter(&pebble.IterOptions{
		LowerBound: keys.AppendChunk(nil, uint64(after)+1, 0),
		UpperBound: keys.ChunksEnd,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		position, _, ok := keys.ParseChunk(it.Key())
		if !ok {
			return fmt.Errorf("%w: key %x", record.ErrChunk, it.Key())
		}
		c, err := record.OpenChunk(it.Value())
		if err != nil {
			return err
		}
		for {
			var b record.Block
			ok, err := c.Next(&b)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			commit, err := f.commit(&rows, &b, record.Position(position), c.PersistedAt)
			if err != nil {
				return err
			}
			if !yield(commit, nil) {
				return nil
			}
		}
	}
	return it.Error()
}

// runCache remembers runs in two generations: one that was not met while the younger filled up is
// forgotten with the older.
type runCache struct {
	young, old map[uint64]cachedRun // by number
}

type cachedRun struct {
	run *Run
	id  *recordv1.RunIdentity
}

// runCacheLimit is how many runs a generation has.
const runCacheLimit = 10_000

func (f *Follower) commit(rows *record.Rows, b *record.Block, position record.Position, persistedAt int64) (*Commit, error) {
	cached, err := f.runs.get(rows, b.Run)
	if err != nil {
		return nil, err
	}
	commit := &Commit{Position: position, PersistedAt: persistedAt, Run: cached.run, Detail: f.detail}
	if b.Count > 0 && (f.wanted == nil || f.wanted(cached.run)) {
		if f.whole != nil && f.whole(cached.run) {
			commit.Detail = record.Whole
		}
		commit.Before = b.Prev
		commit.Records, err = b.Records(cached.id, position, persistedAt, commit.Detail)
	}
	if err == nil && (b.Count == 0 || position == cached.run.CreatedPosition) {
		md, failed := rows.Metadata(b.Run)
		if err = failed; md != nil {
			commit.Metadata = record.DecodeMetadata(md)
		}
	}
	return commit, err
}

// get returns a run.
func (c *runCache) get(rows *record.Rows, ref record.RunRef) (cachedRun, error) {
	cached, ok := c.young[ref.No]
	if ok {
		return cached, nil
	}
	if cached, ok = c.old[ref.No]; !ok {
		id, err := rows.Identity(ref)
		if err != nil {
			return cachedRun{}, err
		}
		cached = cachedRun{Named(id), id}
	}
	if c.young == nil || len(c.young) >= runCacheLimit {
		c.young, c.old = make(map[uint64]cachedRun), c.young
	}
	c.young[ref.No] = cached
	return cached, nil
}
