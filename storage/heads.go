package storage

import (
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
)

// RunGroup is how many runs, in the order of their numbers, are told together to have changed.
const RunGroup = 64

// changes are the groups in which runs were made or appended to since they were last taken.
type changes struct {
	// held while a proposal becomes visible, so that what is taken is what a snapshot shows
	sync.Mutex
	touchedGroups
}

type touchedGroups struct {
	all    bool
	groups []uint64 // a bit each
}

// addLocked notes a run.
func (c *changes) addLocked(run uint64) {
	g := (run - 1) / RunGroup
	for uint64(len(c.groups)) <= g/64 {
		c.groups = append(c.groups, 0)
	}
	c.groups[g/64] |= 1 << (g % 64)
}

// everything notes that any run may be another.
func (c *changes) everything() {
	c.Lock()
	defer c.Unlock()
	c.all = true
}

// takeLocked returns what there is, and forgets it.
func (c *changes) takeLocked() (taken touchedGroups) {
	taken, c.touchedGroups = c.touchedGroups, touchedGroups{}
	return taken
}

// within lists the groups out of count, in order.
func (t *touchedGroups) within(count uint64) (list []uint64) {
	for g := range count {
		if t.all || g/64 < uint64(len(t.groups)) && t.groups[g/64]&(1<<(g%64)) != 0 {
			list = append(list, g)
		}
	}
	return list
}

// Heads is one consistent state of the heads of all runs, beside which appends go on. It must be
// closed.
type Heads struct {
	// Applied is what it is as of.
	Applied Applied
	// Runs is how many there are; they are numbered from 1, in the order in which they were made.
	Runs uint64
	// Changed are the groups, from 0 and in order, in which something may differ from the Heads
	// before: group g has the runs from g × RunGroup + 1 on. After an install, and of a store that
	// was just opened, these are all.
	Changed []uint64

	s    *Store
	h    *handle
	snap *pebble.Snapshot
}

// Heads opens the heads of all runs as of now. What has changed since the call before is told to
// one caller, who must not lose it.
func (s *Store) Heads() (*Heads, error) {
	s.changes.Lock()
	h, err := s.acquire()
	if err != nil {
		s.changes.Unlock()
		return nil, err
	}
	v := &Heads{s: s, h: h, snap: h.db.NewSnapshot()}
	taken := s.changes.takeLocked()
	s.changes.Unlock()
	applied, err := readApplied(v.snap, nil, s.opts.Cluster)
	if err != nil {
		s.changes.everything() // what was taken is lost
		return nil, errors.Join(err, v.Close())
	}
	v.Applied, v.Runs = *applied, applied.Runs()
	v.Changed = taken.within((v.Runs + RunGroup - 1) / RunGroup)
	return v, nil
}

// Close releases it.
func (v *Heads) Close() error {
	err := v.snap.Close()
	v.s.release(v.h)
	return err
}

// Run returns a run with its number, or *RunNotFoundError.
func (v *Heads) Run(runID string) (r *Run, no uint64, err error) {
	r, _, no, err = lookup(v.snap, runID)
	return r, no, err
}

// Groups yields the runs of groups, which come in rising order, a group at a time and without their
// metadata. What is yielded is good until the next. After an error nothing more comes.
func (v *Heads) Groups(groups []uint64) iter.Seq2[[]Run, error] {
	return sequence(func(yield func([]Run, error) bool) error { return v.groups(groups, yield) })
}

func (v *Heads) groups(groups []uint64, yield func([]Run, error) bool) (err error) {
	names, err := v.table(keys.AppendIdentity)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	heads, err := v.table(keys.AppendHead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, heads.Close()) }()
	var runs []Run
	id := &recordv1.RunIdentity{}
	for _, g := range groups {
		runs = runs[:0]
		first, last := g*RunGroup+1, min((g+1)*RunGroup, v.Runs)
		names.SeekGE(keys.AppendIdentity(nil, first))
		heads.SeekGE(keys.AppendHead(nil, first))
		for no := first; no <= last; no++ {
			if err := rowOf(names, no); err != nil {
				return err
			}
			if err := rowOf(heads, no); err != nil {
				return err
			}
			id.Reset()
			if err := unmarshalRow(names.Value(), id); err != nil {
				return err
			}
			h, err := parseHead(heads.Value())
			if err != nil {
				return err
			}
			run := named(id)
			run.head(&h)
			runs = append(runs, *run)
			names.Next()
			heads.Next()
		}
		if !yield(runs, nil) {
			return nil
		}
	}
	return nil
}

// table iterates over the rows of a table whose keys are run numbers.
func (v *Heads) table(key func([]byte, uint64) []byte) (*pebble.Iterator, error) {
	it, err := v.snap.NewIter(&pebble.IterOptions{LowerBound: key(nil, 0), UpperBound: key(nil, v.Runs+1)})
	if err != nil {
		return nil, fmt.Errorf("storage: read heads: %w", err)
	}
	return it, nil
}

// rowOf wants the iterator to be at a run's row.
func rowOf(it *pebble.Iterator, no uint64) error {
	if !it.Valid() {
		return errors.Join(fmt.Errorf("%w: run %d has no row", errRow, no), it.Error())
	}
	if have, ok := keys.ParseRun(it.Key()); !ok || have != no {
		return fmt.Errorf("%w: run %d has no row, %x comes", errRow, no, it.Key())
	}
	return nil
}
