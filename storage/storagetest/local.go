package storagetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
	"runlog/storage/machine"
)

// Cluster is the cluster of every store in tests.
var Cluster = storage.ClusterID{'r', 'u', 'n', 'l', 'o', 'g', '-', 't', 'e', 's', 't'}

// Entry is one entry of the log.
type Entry struct {
	Index    uint64
	Term     uint64
	Data     []byte
	Outcomes []storage.Outcome // as of when it was first applied
	Hash     [32]byte          // rolling hash after it

	fence *SetFence // instead of Data
	clock int64     // of fence
}

// Local is a store together with the log that feeds it.
type Local struct {
	Store *storage.Store
	// Entries is the log, from the first entry on. Indexes have gaps, as Raft keeps entries of its
	// own.
	Entries []Entry
	// SetFence applies a SetFence as an entry of the log. The store has no command for it: only its
	// own tests set this.
	SetFence func(s *storage.Store, index, term uint64, clock int64, f *SetFence) (storage.Outcome, error)

	opts   storage.Options
	failed struct {
		sync.Mutex
		err error
	}
}

var _ System = (*Local)(nil)

// Machines are those of a store in tests: all of the build, and one that only tests have.
func Machines() []storage.Machine { return append(machine.All(), Writer{}) }

// Open opens a store with small options. opts.FS must not be nil; Dir, Cluster, Fail and Machines
// may be left out.
func Open(opts storage.Options) (*Local, error) {
	l := &Local{opts: opts}
	o := &l.opts
	if o.Dir == "" {
		o.Dir = "store"
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 1 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 256 << 10
	}
	if o.Cluster == (storage.ClusterID{}) {
		o.Cluster = Cluster
	}
	if o.Fail == nil {
		o.Fail = l.fail
	}
	if o.FeatureLevel == 0 {
		o.FeatureLevel = machine.FeatureLevel
	}
	if o.Machines == nil {
		o.Machines = Machines()
	}
	return l, l.open()
}

func (l *Local) open() (err error) {
	l.Store, err = storage.Open(l.opts)
	return err
}

func (l *Local) fail(err error) {
	l.failed.Lock()
	defer l.failed.Unlock()
	l.failed.err = errors.Join(l.failed.err, err)
}

// Failed returns the error with which the store called Options.Fail.
func (l *Local) Failed() error {
	l.failed.Lock()
	defer l.failed.Unlock()
	return l.failed.err
}

// Seal encodes requests into a log entry.
func Seal(cluster storage.ClusterID, clock int64, requests []Request) ([]byte, error) {
	p := storage.NewProposal(cluster, 0)
	for _, r := range requests {
		c, err := r.Encode()
		if err != nil {
			return nil, err
		}
		p.Add(c)
	}
	return p.Seal(clock), nil
}

// Propose implements System.
func (l *Local) Propose(clock int64, requests []Request) ([]storage.Outcome, error) {
	e := Entry{Index: 1, Term: 1, clock: clock}
	var err error
	if len(requests) == 1 && requests[0].Fence != nil {
		e.fence = requests[0].Fence
	} else if e.Data, err = Seal(l.opts.Cluster, clock, requests); err != nil {
		return nil, err
	}
	if n := len(l.Entries); n > 0 {
		// Every third index belongs to Raft.
		e.Index = l.Entries[n-1].Index + 1 + uint64(n%3/2)
		e.Term = 1 + uint64(n/10)
	}
	if e.Outcomes, err = l.apply(&e); err != nil {
		return nil, err
	}
	e.Hash = l.Store.Applied().RollingHash
	l.Entries = append(l.Entries, e)
	return e.Outcomes, nil
}

func (l *Local) apply(e *Entry) ([]storage.Outcome, error) {
	if e.fence == nil {
		return l.Store.Apply(e.Index, e.Term, e.Data)
	}
	if e.Index <= l.Store.Applied().Index {
		return nil, nil
	}
	o, err := l.SetFence(l.Store, e.Index, e.Term, e.clock, e.fence)
	return []storage.Outcome{o}, err
}

// Replay applies the log's entries from the first on, as Raft does after a restart, and compares
// what they give now with what they gave at first. The store skips those that it holds. between,
// when not nil, is called before each entry.
func (l *Local) Replay(between func() error) error {
	for i := range l.Entries {
		e := &l.Entries[i]
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		held := l.Store.Applied().Index
		outcomes, err := l.apply(e)
		if err != nil {
			return err
		}
		if e.Index <= held {
			if outcomes != nil {
				return fmt.Errorf("entry %d was applied again, the store held %d", e.Index, held)
			}
			continue
		}
		if err := SameOutcomes(outcomes, e.Outcomes); err != nil {
			return fmt.Errorf("entry %d after a replay: %w", e.Index, err)
		}
		if now := l.Store.Applied(); now.Index != e.Index || now.Term != e.Term || now.RollingHash != e.Hash {
			return fmt.Errorf("entry %d of term %d after a replay: now at %d of %d, rolling hash %x; was %x",
				e.Index, e.Term, now.Index, now.Term, now.RollingHash, e.Hash)
		}
	}
	return nil
}

// Crash takes the power away: what was not synced stays with a probability of percent, block by
// block. The store opens again on what is left. opts.FS must be a crashable disk in memory.
func (l *Local) Crash(percent int, rng *rand.Rand) error {
	return l.Move(l.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
}

// Move closes the store and opens it on another disk.
func (l *Local) Move(disk vfs.FS) error {
	if err := l.Store.Close(); err != nil {
		return err
	}
	l.opts.FS = disk
	return l.open()
}

// Prefix returns how many of the log's entries the store holds, or an error when its state is not
// exactly the one that it had after one of them (D2).
func (l *Local) Prefix() (int, error) {
	now := l.Store.Applied()
	if now.Index == 0 && now.Events == 0 && now.PersistedAt == 0 && now.RollingHash == [32]byte{} {
		return 0, nil
	}
	for i := range l.Entries {
		if e := &l.Entries[i]; e.Index == now.Index {
			if now.RollingHash != e.Hash || now.Term != e.Term {
				return i + 1, fmt.Errorf("at index %d: rolling hash %x, term %d; was %x, %d", e.Index, now.RollingHash, now.Term, e.Hash, e.Term)
			}
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("the store is at index %d, where there was no entry", now.Index)
}

// Run implements System.
func (l *Local) Run(runID string) (*storage.Run, error) { return l.Store.Run(runID) }

// Events implements System.
func (l *Local) Events(runID string, after uint64) ([]storage.Record, error) {
	return ReadRun(l.Store, runID, after)
}

// ReadRun returns a run's records with runSeq above after.
func ReadRun(s *storage.Store, runID string, after uint64) (records []storage.Record, err error) {
	v, err := s.View(runID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	for r, err := range v.Events(after) {
		if err != nil {
			return records, err
		}
		records = append(records, *r)
	}
	return records, nil
}

// Log implements System.
func (l *Local) Log(after storage.Position) ([]storage.Commit, error) {
	return ReadLog(l.Store, after)
}

// ReadLog returns what a store committed after a position.
func ReadLog(s *storage.Store, after storage.Position) (commits []storage.Commit, err error) {
	for c, err := range s.Follow(storage.Whole).Log(after) {
		if err != nil {
			return commits, err
		}
		commits = append(commits, *c)
	}
	return commits, nil
}

// Applied implements System.
func (l *Local) Applied() storage.Applied { return l.Store.Applied() }

// Reopen implements System.
func (l *Local) Reopen() error {
	if err := l.Store.Close(); err != nil {
		return err
	}
	return l.open()
}

// Close implements System.
func (l *Local) Close() error { return errors.Join(l.Store.Close(), l.Failed()) }
