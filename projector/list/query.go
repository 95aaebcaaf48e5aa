package list

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/run"
	"runlog/storage"
)

// maxLooks bounds how many rows one page looks at, in all tables. A page that reaches the bound
// ends early, with the place where the next one begins.
const maxLooks = 50_000

func traitsAsked(f *run.Filter) *traits {
	return &traits{texts: [...]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID}, status: f.Status}
}

// Page is a part of a list.
type Page struct {
	Runs []run.Listed
	// Next is where the next page begins, nil at the end. It is valid with any filter and on any
	// node of the cluster.
	Next []byte
	// Position is the position up to which, at least, the page shows the log.
	Position storage.Position
}

// After returns the place behind a run, where a page of the runs that follow it begins.
func After(createdAt int64, runID string) []byte {
	return append(appendPlace(nil, createdAt, runID), 0)
}

// Read returns a page of at most limit runs, newest first, and the place where the next page
// begins, nil at the end. It begins at a place that an earlier page returned; nil: at the newest
// run. Errors that are not those of the reader are ErrDamaged.
func Read(r pebble.Reader, f *run.Filter, from []byte, limit int) (page []run.Listed, next []byte, err error) {
	return read(r, f, from, limit, maxLooks)
}

// read is Read with a bound on the rows it looks at.
func read(r pebble.Reader, f *run.Filter, from []byte, limit, looks int) (page []run.Listed, next []byte, err error) {
	m, err := meet(r, f, from, looks)
	defer func() { err = errors.Join(err, m.close()) }()
	if err != nil {
		return nil, nil, err
	}
	want := traitsAsked(f)
	for m.next() {
		row, ok := parseListRow(m.row())
		if !ok || len(m.at) < placeHeader {
			return nil, nil, fmt.Errorf("%w: %x", ErrDamaged, m.at)
		}
		if !want.match(&row) {
			continue
		}
		page = append(page, run.Listed{RunID: string(m.at[placeHeader:]), Status: row.status})
		if len(page) == limit {
			return page, m.rest(), nil
		}
	}
	if !m.ended {
		next = m.at
	}
	return page, next, nil
}

// placeHeader is the length of a place before the runId.
const placeHeader = 8

// meeting intersects ranges of runs (leapfrog join). All ranges have the same order, so if one
// range has no run up to a place, the others go on at that place too. The smallest range bounds the
// work.
type meeting struct {
	ranges []span // the last one is of the list itself, whose rows have the values
	// at is the place of the search: no run before it can be found. After next returns true, the
	// run is at this place.
	at    []byte
	found bool
	looks int  // rows still to be looked at
	ended bool // no run follows
}

// meet begins a search. The caller closes the meeting, also after an error.
func meet(r pebble.Reader, f *run.Filter, from []byte, looks int) (*meeting, error) {
	m := &meeting{at: bytes.Clone(from), looks: looks}
	if f.CreatedBefore > 0 {
		// Newer runs have smaller places: begin at those created just before.
		if first := appendPlace(nil, f.CreatedBefore-1, ""); bytes.Compare(first, m.at) > 0 {
			m.at = first
		}
	}
	want := traitsAsked(f)
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
		it, err := iterator(r, m.ranges, opts)
		if err != nil {
			return m, err
		}
		m.ranges = append(m.ranges, span{it: it, prefix: len(prefix), key: prefix})
	}
	return m, nil
}

// iterator opens an iterator that sees the same state as the open ones.
func iterator(r pebble.Reader, open []span, opts *pebble.IterOptions) (*pebble.Iterator, error) {
	if len(open) == 0 {
		return r.NewIter(opts)
	}
	return open[0].it.Clone(pebble.CloneOptions{IterOptions: opts})
}

// next finds the next run. It returns false at the end, and when the bound on rows is reached.
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
				met = 0 // begin with the first range again
				continue
			}
		}
		met++
	}
	m.found = true
	return true
}

// row returns the row of the run found.
func (m *meeting) row() []byte { return m.ranges[len(m.ranges)-1].it.Value() }

// rest returns the place behind the run found, nil when no run follows.
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
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// span iterates over the runs with some values, in the order of their places.
type span struct {
	it     *pebble.Iterator
	prefix int    // bytes of key that all keys begin with
	key    []byte // of the last seek
}

// seek moves to the first run at or behind a place.
func (r *span) seek(place []byte) bool {
	// The place right behind the current run needs a step only.
	if last := len(place) - 1; last >= 0 && place[last] == 0 && r.it.Valid() && bytes.Equal(r.place(), place[:last]) {
		return r.it.Next()
	}
	r.key = append(r.key[:r.prefix], place...)
	return r.it.SeekGE(r.key)
}

func (r *span) place() []byte { return r.it.Key()[r.prefix:] }
