package projector

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage"
)

// maxListScan bounds how many rows one page looks at, in all tables; a page that found less than
// asked for then ends early with a cursor.
const maxListScan = 50_000

// Filter says which runs to list. Empty fields mean any.
type Filter struct {
	TenantID, ProjectID, EnvironmentID, PlanID string
	Status                                     RunStatus // 0: any
	CreatedAfter                               int64     // nanoseconds, exclusive; 0: any
	CreatedBefore                              int64     // nanoseconds, exclusive; 0: any
}

func (f *Filter) traits() *traits {
	return &traits{texts: [...]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID}, status: f.Status}
}

// Listed is a run in a list.
type Listed struct {
	RunID  string
	Status RunStatus
}

// Page is a part of a list.
type Page struct {
	Runs []Listed
	// Next is where the next page begins, nil at the end. It says nothing about the filter, and
	// holds for any database of the cluster.
	Next []byte
	// Position is up to where, at least, the page shows what was folded.
	Position storage.Position
}

// List returns a page of at most limit runs, newest first, from a place in the list on that an
// earlier page gave; nil: from the begin.
func (p *Projector) List(f Filter, from []byte, limit int) (Page, error) {
	p.disk.RLock()
	defer p.disk.RUnlock()
	if p.disk.db == nil {
		return Page{}, fmt.Errorf("%w: is being made anew", errProjection)
	}
	// A round writes its rows before it moves the position.
	position := p.Position()
	runs, next, err := p.disk.db.list(&f, from, limit, maxListScan)
	if err != nil {
		p.disk.db.damaged(err)
		return Page{}, err
	}
	return Page{Runs: runs, Next: next, Position: position}, nil
}

// list is a page that looks at no more than so many rows.
func (d *database) list(f *Filter, from []byte, limit, looks int) (page []Listed, next []byte, err error) {
	m, err := d.meet(f, from, looks)
	defer func() { err = errors.Join(err, m.close()) }()
	if err != nil {
		return nil, nil, err
	}
	want := f.traits()
	for m.next() {
		row, ok := parseListRow(m.row())
		if !ok || len(m.at) < placeHeader {
			return nil, nil, fmt.Errorf("%w: list row %x", errProjection, m.at)
		}
		if !want.match(&row) {
			continue
		}
		page = append(page, Listed{RunID: string(m.at[placeHeader:]), Status: row.status})
		if len(page) == limit {
			return page, m.rest(), nil
		}
	}
	if !m.ended {
		next = m.at
	}
	return page, next, nil
}

// placeHeader is what comes before the runId of a place.
const placeHeader = 8

// meeting finds the runs that are in every one of some ranges. All ranges have their runs in the
// same order, so it leaps: whichever range has nothing up to some place lets the others go on there
// too. What it looks at is bounded by the runs of the smallest range, wherever the values of a
// filter are rare.
type meeting struct {
	ranges []span // the last one is of the list itself, whose rows have the values
	// at is where the search is: no run before it is still to be found. While next says true, the
	// run is there.
	at    []byte
	found bool
	looks int  // rows still to be looked at
	ended bool // no run comes any more
}

// meet begins a search. The meeting has to be closed also after an error.
func (d *database) meet(f *Filter, from []byte, looks int) (*meeting, error) {
	m := &meeting{at: bytes.Clone(from), looks: looks}
	if f.CreatedBefore > 0 {
		// Newer runs have smaller places: begin at those created just before.
		if first := appendPlace(nil, f.CreatedBefore-1, ""); bytes.Compare(first, m.at) > 0 {
			m.at = first
		}
	}
	want := f.traits()
	for _, x := range append(want.chosen(), whole) {
		prefix := x.appendPrefix(nil, want)
		opts := &pebble.IterOptions{LowerBound: prefix}
		if f.CreatedAfter > 0 {
			opts.UpperBound = appendPlace(bytes.Clone(prefix), f.CreatedAfter, "")
		} else {
			// The last byte of a prefix is a table, a status or the end of a text, and none of them
			// is 0xff.
			opts.UpperBound = bytes.Clone(prefix)
			opts.UpperBound[len(prefix)-1]++
		}
		it, err := d.iterator(m.ranges, opts)
		if err != nil {
			return m, fmt.Errorf("%w: %w", errProjection, err)
		}
		m.ranges = append(m.ranges, span{it: it, prefix: len(prefix), key: prefix})
	}
	return m, nil
}

// iterator sees the same state as those that are open already.
func (d *database) iterator(open []span, opts *pebble.IterOptions) (*pebble.Iterator, error) {
	if len(open) == 0 {
		return d.db.NewIter(opts)
	}
	return open[0].it.Clone(pebble.CloneOptions{IterOptions: opts})
}

// next finds the next run. It says false at the end, and when enough rows were looked at.
func (m *meeting) next() bool {
	if m.found {
		m.at = append(m.at, 0)
	}
	m.found = false
	for met := 0; met < len(m.ranges); {
		if m.looks == 0 {
			return false
		}
		m.looks--
		r := &m.ranges[met]
		if !r.seek(m.at) {
			m.ended = true
			return false
		}
		if place := r.place(); !bytes.Equal(place, m.at) {
			m.at = append(m.at[:0], place...)
			if met > 0 {
				met = 0 // ask from the first one on again
				continue
			}
		}
		met++
	}
	m.found = true
	return true
}

// row returns the row of the run that was found.
func (m *meeting) row() []byte { return m.ranges[len(m.ranges)-1].it.Value() }

// rest returns where to go on after the run that was found, nil when nothing follows.
func (m *meeting) rest() []byte {
	if !m.ranges[0].it.Next() {
		return nil
	}
	return append(m.at, 0)
}

func (m *meeting) close() error {
	var errs []error
	for i := range m.ranges {
		if err := m.ranges[i].it.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", errProjection, err))
		}
	}
	return errors.Join(errs...)
}

// span is the runs with some values, in the order of their places.
type span struct {
	it     *pebble.Iterator
	prefix int    // bytes of key that all keys begin with
	key    []byte // asked for last
}

// seek goes to the first run that is not before a place.
func (r *span) seek(place []byte) bool {
	// From one run right to what follows it, as a search that found one does, is but a step.
	if last := len(place) - 1; last >= 0 && place[last] == 0 && r.it.Valid() && bytes.Equal(r.place(), place[:last]) {
		return r.it.Next()
	}
	r.key = append(r.key[:r.prefix], place...)
	return r.it.SeekGE(r.key)
}

func (r *span) place() []byte { return r.it.Key()[r.prefix:] }
