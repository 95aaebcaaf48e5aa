package directory

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/files"
	"runlog/storage/internal/record"
)

// ErrClosed means that the store was closed.
var ErrClosed = errors.New("storage: closed")

// Options of a directory. All but OpenFiles and Reached are required; storage.Options says what
// they mean.
type Options struct {
	Dir           string
	FS            vfs.FS
	Cluster       record.ClusterID
	CacheBytes    int64
	MemTableBytes uint64
	OpenFiles     int
	FeatureLevel  uint32
	Logger        *slog.Logger
	Fail          func(error)
	// Reached returns the index of the last entry that the store has applied: a checkpoint that
	// reaches less far is refused. It is called after Open, from anywhere. A caller that takes in
	// no checkpoint leaves it out.
	Reached func() uint64
}

// State is what a database holds.
type State struct {
	// Applied is how far it reaches.
	Applied record.Applied
	// Level is its feature level.
	Level uint32
}

// Directory is the data directory of a store, with the databases in it.
type Directory struct {
	opts  Options
	cache *pebble.Cache

	// current is the live database; nil once the directory is closed. Only Received.Install
	// replaces it.
	current    atomic.Pointer[handle]
	handles    handles
	lastNumber atomic.Uint64 // of a directory
	// installed is the applied index with which the live database came here.
	installed atomic.Uint64
	// seeding says that there is a Seed; there is one at a time.
	seeding atomic.Bool
}

func newDirectory(opts Options) *Directory {
	d := &Directory{opts: opts, cache: pebble.NewCache(opts.CacheBytes)}
	d.handles.open = map[*handle]struct{}{}
	return d
}

// Open opens or makes the directory of a store, and returns what its live database holds. The
// caller must own Options.Dir.
func Open(opts Options) (*Directory, *State, error) {
	d := newDirectory(opts)
	state, err := d.openLive()
	if err != nil {
		err = errors.Join(err, d.closeHandles())
		d.cache.Unref()
		return nil, nil, err
	}
	return d, state, nil
}

// openLive opens the database that CURRENT names, and removes all others.
func (d *Directory) openLive() (*State, error) {
	if err := files.MakeDir(d.opts.FS, d.opts.Dir); err != nil {
		return nil, err
	}
	c, err := d.readCurrent()
	if err != nil {
		return nil, err
	}
	h, err := d.openHandle(c.number, false)
	if err != nil {
		return nil, err
	}
	applied, err := record.ReadApplied(h.db, nil, d.opts.Cluster)
	if err != nil {
		return nil, damaged(d.path(databaseDir(c.number)), err)
	}
	if applied.Index < c.installed {
		return nil, files.Damage(fmt.Errorf("%w: %s holds entries up to %d, it came here with those up to %d",
			errLayout, d.path(databaseDir(c.number)), applied.Index, c.installed))
	}
	level, err := record.ReadLevel(h.db, d.opts.FeatureLevel)
	if err != nil {
		return nil, damaged(d.path(databaseDir(c.number)), err)
	}
	// The database is locked now, so that no other process uses the rest.
	if err := d.sweep(c.number); err != nil {
		return nil, err
	}
	d.installed.Store(c.installed)
	d.current.Store(h)
	return &State{Applied: *applied, Level: level}, nil
}

// Close flushes and closes the databases. What reads, Receive and a Seed must have ended.
func (d *Directory) Close() error {
	live := d.current.Swap(nil)
	err := errors.Join(live.db.Flush(), d.closeHandles())
	d.cache.Unref()
	return err
}
