package read

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// RunGroup is the number of runs, with consecutive numbers, for which Heads reports changes
// together.
const RunGroup = 64

// Changes is the set of groups whose runs were made or changed since it was last taken. The zero
// value is empty.
type Changes struct {
	// The lock is held while a proposal becomes visible, and while OpenHeads takes a snapshot: the
	// groups that it takes match its snapshot.
	sync.Mutex
	touchedGroups
}

type touchedGroups struct {
	all    bool
	groups []uint64 // a bit each
}

// AddLocked adds the group of the run with a number.
func (c *Changes) AddLocked(run uint64) {
	g := (run - 1) / RunGroup
	for uint64(len(c.groups)) <= g/64 {
		c.groups = append(c.groups, 0)
	}
	c.groups[g/64] |= 1 << (g % 64)
}

// AddAllLocked adds all groups: any run may have changed.
func (c *Changes) AddAllLocked() { c.all = true }

// AddAll is AddAllLocked for a caller that does not hold the lock.
func (c *Changes) AddAll() {
	c.Lock()
	defer c.Unlock()
	c.AddAllLocked()
}

// takeLocked returns the set and empties it.
func (c *Changes) takeLocked() (taken touchedGroups) {
	taken, c.touchedGroups = c.touchedGroups, touchedGroups{}
	return taken
}

// within lists the groups of the set below count, in order.
func (t *touchedGroups) within(count uint64) (list []uint64) {
	for g := range count {
		if t.all || g/64 < uint64(len(t.groups)) && t.groups[g/64]&(1<<(g%64)) != 0 {
			list = append(list, g)
		}
	}
	return list
}

// Heads is a snapshot of the heads of all runs. Appends continue meanwhile. The caller must close
// it.
type Heads struct {
	// Applied is the applied state of the snapshot.
	Applied record.Applied
	// Runs is the number of runs. They are numbered from 1, in the order in which they were made.
	Runs uint64
	// Changed are the groups, from 0 and in order, that may differ from the Heads before. Group g
	// has the runs from g × RunGroup + 1 on. After an install or a restart, all groups are listed.
	Changed []uint64

	release func()
	snap    *pebble.Snapshot
}

// OpenHeads takes a snapshot of the heads of all runs, and the changes up to it.
func OpenHeads(acquire Acquire, changes *Changes, cluster record.ClusterID) (*Heads, error) {
	changes.Lock()
	db, release, err := acquire()
	if err != nil {
		changes.Unlock()
		return nil, err
	}
	v := &Heads{release: release, snap: db.NewSnapshot()}
	taken := changes.takeLocked()
	changes.Unlock()
	applied, err := record.ReadApplied(v.snap, nil, cluster)
	if err != nil {
		changes.AddAll() // the set that was taken is lost
		return nil, errors.Join(err, v.Close())
	}
	v.Applied, v.Runs = *applied, applied.Runs()
	v.Changed = taken.within((v.Runs + RunGroup - 1) / RunGroup)
	return v, nil
}

// Close releases the snapshot.
func (v *Heads) Close() error {
	err := v.snap.Close()
	v.release()
	return err
}

// Run returns a run with its number, or *RunNotFoundError.
func (v *Heads) Run(runID string) (r *Run, no uint64, err error) {
	r, _, ref, err := findIn(v.snap, runID)
	return r, ref.No, err
}

// Groups yields the runs of groups, a group at a time, in the order of their numbers and without
// metadata. The groups must be given in rising order. A group is valid until the next one is
// yielded. An error ends the sequence.
func (v *Heads) Groups(groups []uint64) iter.Seq2[[]Run, error] {
	return Sequence(func(yield func([]Run, error) bool) error { return v.groups(groups, yield) })
}

func (v *Heads) groups(groups []uint64, yield func([]Run, error) bool) (err error) {
	g := groupReader{v: v}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.open(); err != nil {
		return err
	}
	for some := range slices.Chunk(groups, groupsAtOnce) {
		if err := g.read(some); err != nil {
			return err
		}
		first := 0
		for _, group := range some {
			n := int(min(RunGroup, v.Runs-group*RunGroup))
			if !yield(g.runs[first:first+n:first+n], nil) {
				return nil
			}
			first += n
		}
	}
	return nil
}

// groupsAtOnce are read together: 4,096 runs, which take some 2 MB.
const groupsAtOnce = 64

// groupReader reads runs by their numbers. Their rows lie by bucket, and inside a bucket by number:
// of groups that are read together, it seeks once a bucket, and most rows are the next one.
type groupReader struct {
	v                     *Heads
	buckets, names, heads *pebble.Iterator
	refs                  []record.RunRef
	order                 []int // of refs, by bucket
	runs                  []Run
	key                   []byte
	id                    recordv1.RunIdentity
}

func (g *groupReader) open() (err error) {
	g.buckets = g.table(&err, keys.AppendBucket(nil, 0), keys.AppendBucket(nil, g.v.Runs+1))
	g.names = g.table(&err, keys.AppendIdentity(nil, record.RunRef{}), keys.IdentitiesEnd)
	g.heads = g.table(&err, keys.AppendHead(nil, record.RunRef{}), keys.HeadsEnd)
	return err
}

func (g *groupReader) table(err *error, from, to []byte) *pebble.Iterator {
	if *err != nil {
		return nil
	}
	it, failed := g.v.snap.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if failed != nil {
		*err = fmt.Errorf("storage: read heads: %w", failed)
	}
	return it
}

func (g *groupReader) close() error { return closeAll(g.buckets, g.names, g.heads) }

// read reads the runs of groups, in the order of their numbers.
func (g *groupReader) read(groups []uint64) error {
	g.refs, g.order, g.runs = g.refs[:0], g.order[:0], g.runs[:0]
	for _, group := range groups {
		for no := group*RunGroup + 1; no <= min((group+1)*RunGroup, g.v.Runs); no++ {
			g.key = keys.AppendBucket(g.key[:0], no)
			row, err := rowAt(g.buckets, g.key)
			if err == nil && len(row) != 2 {
				err = fmt.Errorf("%w: bucket of %d bytes", record.ErrRow, len(row))
			}
			if err != nil {
				return err
			}
			g.order = append(g.order, len(g.refs))
			g.refs = append(g.refs, record.RunRef{Bucket: binary.BigEndian.Uint16(row), No: no})
			g.runs = append(g.runs, Run{})
			g.buckets.Next()
		}
	}
	slices.SortStableFunc(g.order, func(a, b int) int { return cmp.Compare(g.refs[a].Bucket, g.refs[b].Bucket) })
	for _, i := range g.order {
		if err := g.run(g.refs[i], &g.runs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (g *groupReader) run(ref record.RunRef, run *Run) error {
	g.key = keys.AppendIdentity(g.key[:0], ref)
	row, err := rowAt(g.names, g.key)
	if err != nil {
		return err
	}
	g.id.Reset()
	if err := record.UnmarshalRow(row, &g.id); err != nil {
		return err
	}
	g.key = keys.AppendHead(g.key[:0], ref)
	if row, err = rowAt(g.heads, g.key); err != nil {
		return err
	}
	h, err := record.ParseHead(row)
	if err != nil {
		return err
	}
	*run = *Named(&g.id)
	setHead(run, &h)
	g.names.Next()
	g.heads.Next()
	return nil
}

// rowAt returns the row of a key, which most often is where the iterator stands.
func rowAt(it *pebble.Iterator, key []byte) ([]byte, error) {
	if !it.Valid() || !bytes.Equal(it.Key(), key) {
		if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
			return nil, errors.Join(fmt.Errorf("%w: %x is not there", record.ErrRow, key), it.Error())
		}
	}
	return it.ValueAndErr()
}
