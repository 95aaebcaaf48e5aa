package directory

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
	"runlog/storage/internal/stream"
)

// Promise is the state that the files of a checkpoint must hold, as its giver describes it.
type Promise struct {
	Cluster      record.ClusterID
	Index, Term  uint64 // of the last applied entry
	RollingHash  [32]byte
	PersistedAt  int64 // the last stamp, nanoseconds
	Runs, Events uint64
}

// ErrPromise means that the files of a checkpoint do not hold what was said of them.
var ErrPromise = errors.New("storage: the files do not hold what is said of them")

// adopted is the number of the database that Adopt takes over.
const adopted = 1

// AdoptDir is where Adopt finds the files of the checkpoint, below the directory of the store that
// is to be.
func AdoptDir(fs vfs.FS, dir string) string { return fs.PathJoin(dir, databaseDir(adopted)) }

// Adopt makes a store of the cluster in opts out of the files of another cluster's checkpoint, as
// storage.Adopt describes it. CURRENT comes last: until then the directory is no store.
func Adopt(opts Options, promise Promise, members []byte, held bool) (err error) {
	a := &adoption{promise: promise, held: held, failed: make(chan error, 1)}
	a.d = newDirectory(opts)
	defer a.d.cache.Unref()
	a.d.opts.Fail = func(err error) {
		select {
		case a.failed <- err:
		default:
		}
		opts.Fail(err)
	}
	if err := a.look(); err != nil {
		return err
	}
	if err := a.adopt(members); err != nil {
		return err
	}
	return a.d.writeCurrent(current{number: adopted, installed: promise.Index})
}

// adoption is a database on its way to another cluster.
type adoption struct {
	d       *Directory
	promise Promise
	held    bool
	failed  chan error // the first trouble of the database
}

// look refuses a directory that has more or other than the files of a checkpoint, or a damaged
// table.
func (a *adoption) look() error {
	fs, dir := a.d.opts.FS, a.d.opts.Dir
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("storage: list %s: %w", dir, err)
	}
	if !slices.Equal(names, []string{databaseDir(adopted)}) {
		return fmt.Errorf("%w: it has %q, where nothing but %s is to be adopted", errLayout, names, databaseDir(adopted))
	}
	if names, err = fs.List(AdoptDir(fs, dir)); err != nil {
		return fmt.Errorf("storage: list %s: %w", AdoptDir(fs, dir), err)
	}
	for _, name := range names {
		if len(name) > stream.MaxFileName || !stream.FileNameRE.MatchString(name) {
			return fmt.Errorf("%w: file %q is none of a checkpoint", ErrPromise, name)
		}
		if err := checkTable(fs, fs.PathJoin(AdoptDir(fs, dir), name)); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrPromise, name, err)
		}
	}
	return nil
}

// adopt rewrites the two rows that name the old cluster, its incarnation and its nodes. From here
// on, the fences of the old cluster are those of no run (QUE-8).
func (a *adoption) adopt(members []byte) (err error) {
	h, err := a.d.openHandle(adopted, true)
	if err != nil {
		return err
	}
	h.live.Store(true) // what troubles it from here on ends the adoption
	defer func() { err = errors.Join(err, h.close()) }()
	now, err := record.ReadApplied(h.db, nil, a.promise.Cluster)
	if err != nil {
		return err
	}
	if err := a.promise.fits(now); err != nil {
		return err
	}
	if _, err := record.ReadLevel(h.db, a.d.opts.FeatureLevel); err != nil {
		return err
	}
	now.Incarnation = a.d.opts.Cluster.First()
	now.FencesAbove = record.FencesAfter(now.FencesAbove, a.d.opts.Cluster[:])
	now.Held, now.HeldSince = a.held, 0 // The backup may be of a cluster that was held itself.
	row, err := record.AppliedRow(now, a.d.opts.Cluster)
	if err != nil {
		return err
	}
	batch := h.db.NewBatch()
	defer func() { _ = batch.Close() }()
	err = errors.Join(
		batch.Set(keys.Applied, row, nil),
		batch.Set(keys.Membership, record.MembershipRow(now.Index, members), nil),
		h.db.Apply(batch, pebble.NoSync))
	if err != nil {
		return fmt.Errorf("storage: adopt: %w", err)
	}
	return a.makeDurable(h)
}

// makeDurable flushes, and reads back from stable storage what it has flushed. Pebble tries again
// forever where a flush fails.
func (a *adoption) makeDurable(h *handle) error {
	flushed, err := h.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("storage: flush: %w", err)
	}
	select {
	case <-flushed:
	case err := <-a.failed:
		return err
	}
	now, err := record.ReadApplied(h.db, &pebble.IterOptions{OnlyReadGuaranteedDurable: true}, a.d.opts.Cluster)
	if err != nil {
		return err
	}
	return a.promise.fits(now)
}

// fits compares.
func (p *Promise) fits(a *record.Applied) error {
	is := Promise{Cluster: p.Cluster, Index: a.Index, Term: a.Term, RollingHash: a.RollingHash, PersistedAt: a.PersistedAt, Runs: a.Runs(), Events: a.Events}
	if is != *p {
		return fmt.Errorf("%w: they hold entries up to %d of term %d, rolling hash %x, %d events of %d runs, the last stamp %s; said was %d, %d, %x, %d, %d, %s",
			ErrPromise, is.Index, is.Term, is.RollingHash, is.Events, is.Runs, stampText(is.PersistedAt),
			p.Index, p.Term, p.RollingHash, p.Events, p.Runs, stampText(p.PersistedAt))
	}
	return nil
}

// stampText is a stamp as people read it.
func stampText(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
