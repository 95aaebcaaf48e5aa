package list

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/run"
	"runlog/storage"
)

const (
	// maxLooks bounds the work for one page, in all tables: a step to the next row is one look, a
	// seek is seekLooks. A page that reaches the bound ends early, with the place where the next
	// one begins.
	maxLooks = 10_000
	// countLooks bounds the work for a count.
	countLooks = 40_000
	// maxPrefixed bounds the runs of a runId prefix that are sorted in memory. The runs of a prefix
	// that has more are found as those of a column without an index.
	maxPrefixed = 5000
)

// Page is a part of a list.
type Page struct {
	Runs []run.Listed
	// Next is where the next page begins, nil at the end. It is valid with any filter of the same
	// order and on any node of the cluster.
	Next []byte
	// Position is the position up to which, at least, the page shows the log.
	Position storage.Position
}

// After returns the place behind a run in a list from the newest on, or from the oldest on, where a
// page of the runs that follow it begins.
func After(createdAt int64, runID string, oldest bool) []byte {
	at := cursor{oldest: oldest}
	at.moveBehind(appendPlace(nil, createdAt, runID))
	return at.limit
}

// Read returns a page of at most limit runs, and the place where the next page begins, nil at the
// end. It begins at a place that an earlier page returned; nil: at the first run. Errors that are
// not those of the reader are ErrDamaged.
func Read(r pebble.Reader, f *run.Filter, from []byte, limit int) (page []run.Listed, next []byte, err error) {
	return read(r, f, from, limit, maxLooks)
}

// read is Read with a bound on the rows it looks at.
func read(r pebble.Reader, f *run.Filter, from []byte, limit, looks int) (page []run.Listed, next []byte, err error) {
	m, err := meet(r, f, from, looks, true)
	defer func() { err = errors.Join(err, m.close()) }()
	if err != nil {
		return nil, nil, err
	}
	for m.next() {
		row, wanted, err := m.row()
		if err != nil {
			return nil, nil, err
		}
		if !wanted {
			continue
		}
		listed := run.Listed{RunID: m.runID()}
		var ok bool
		if listed.Summary, ok = row.summary(); !ok {
			return nil, nil, fmt.Errorf("%w: %x", ErrDamaged, m.place)
		}
		if page = append(page, listed); len(page) == limit {
			return page, m.rest(), nil
		}
	}
	if !m.ended {
		next = m.at.limit
	}
	return page, next, nil
}

// Count returns the number of runs that a filter selects, at most limit. more reports whether there
// are, or may be, others: it looks at a bounded number of rows.
func Count(r pebble.Reader, f *run.Filter, limit int) (n int, more bool, err error) {
	return count(r, f, limit, countLooks)
}

func count(r pebble.Reader, f *run.Filter, limit, looks int) (n int, more bool, err error) {
	_, covered := chosen(f)
	needsRow := asked(f)&^covered != 0 || f.StartedAfter != 0 || f.StartedBefore != 0
	m, err := meet(r, f, nil, looks, needsRow)
	defer func() { err = errors.Join(err, m.close()) }()
	if err != nil {
		return 0, false, err
	}
	for m.next() {
		wanted := m.prefixed()
		if wanted && needsRow {
			if _, wanted, err = m.row(); err != nil {
				return 0, false, err
			}
		}
		if !wanted {
			continue
		}
		if n == limit {
			return n, true, nil
		}
		n++
	}
	return n, !m.ended, nil
}

// meeting intersects spans of runs (leapfrog join). All spans have the same order, so if one span
// has no run up to a place, the others continue at that place too. The smallest span bounds the
// work.
type meeting struct {
	f     *run.Filter
	want  *traits
	spans []span
	list  *rows // the last span, of the list itself; nil: its rows are not needed
	at    cursor
	found bool   // a run was found, at place
	place []byte // of the run found last
	looks int    // rows still to be looked at
	ended bool   // no run follows
}

// meet begins a search. The caller closes the meeting, also after an error.
func meet(r pebble.Reader, f *run.Filter, from []byte, looks int, needsRow bool) (*meeting, error) {
	m := &meeting{f: f, want: traitsAsked(f), at: cursor{oldest: f.OldestFirst, limit: bytes.Clone(from)}, looks: looks}
	var open *pebble.Iterator // all iterators see the same state
	iterator := func(opts *pebble.IterOptions) (it *pebble.Iterator, err error) {
		if open == nil {
			open, err = r.NewIter(opts)
			return open, err
		}
		return open.Clone(pebble.CloneOptions{IterOptions: opts})
	}
	table := func(prefix []byte) (*rows, error) {
		it, err := iterator(m.bounds(prefix))
		if err != nil {
			return nil, err
		}
		return &rows{it: it, prefix: len(prefix), key: prefix}, nil
	}
	add := func(prefixes ...[]byte) error {
		u := &union{}
		for _, prefix := range prefixes {
			part, err := table(prefix)
			if err != nil {
				return errors.Join(err, u.close())
			}
			u.parts = append(u.parts, part)
		}
		if len(u.parts) == 1 {
			m.spans = append(m.spans, u.parts[0])
			return nil
		}
		u.ended = make([]bool, len(u.parts))
		m.spans = append(m.spans, u)
		return nil
	}
	for i := range f.Labels {
		if err := add(appendLabelPrefix(nil, &f.Labels[i])); err != nil {
			return m, err
		}
	}
	if len(f.Tenants) > 0 {
		var prefixes [][]byte
		for _, tenant := range f.Tenants {
			prefixes = append(prefixes, appendText([]byte{tableByTenant}, tenant))
		}
		if err := add(prefixes...); err != nil {
			return m, err
		}
	}
	indexed, _ := chosen(f)
	for _, x := range indexed {
		if err := add(m.prefixes(x)...); err != nil {
			return m, err
		}
	}
	if needsRow || len(m.spans) == 0 {
		list, err := table([]byte{tableList})
		if err != nil {
			return m, err
		}
		m.list, m.spans = list, append(m.spans, list)
	}
	if f.RunIDPrefix == "" {
		return m, nil
	}
	return m, m.addPrefixed(iterator)
}

// prefixes returns the prefixes of the keys that a filter asks for in an index: one for each
// status, where the index has the status.
func (m *meeting) prefixes(x index) (list [][]byte) {
	if x.by&byStatus == 0 {
		return [][]byte{x.appendPrefix(nil, m.want)}
	}
	for status := range m.f.Statuses.All() {
		t := *m.want
		t.status = status
		list = append(list, x.appendPrefix(nil, &t))
	}
	return list
}

// bounds returns the bounds of the keys with a prefix, for the filter's window of createdAt.
func (m *meeting) bounds(prefix []byte) *pebble.IterOptions {
	opts := &pebble.IterOptions{LowerBound: prefix}
	if m.f.CreatedBefore > 0 { // Newer runs have smaller places.
		opts.LowerBound = appendPlace(bytes.Clone(prefix), m.f.CreatedBefore-1, "")
	}
	if m.f.CreatedAfter > 0 {
		opts.UpperBound = appendPlace(bytes.Clone(prefix), m.f.CreatedAfter, "")
	} else {
		// The last byte of a prefix is a table, a status or the end of a text, and none of them is
		// 0xff.
		opts.UpperBound = bytes.Clone(prefix)
		opts.UpperBound[len(prefix)-1]++
	}
	if bytes.Compare(opts.LowerBound, opts.UpperBound) > 0 {
		opts.LowerBound = opts.UpperBound // an empty window
	}
	return opts
}

// addPrefixed adds the runs with the filter's runId prefix as the first span, if they are few.
func (m *meeting) addPrefixed(iterator func(*pebble.IterOptions) (*pebble.Iterator, error)) (err error) {
	prefix := append([]byte{tableByID}, m.f.RunIDPrefix...)
	opts := &pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)}
	it, err := iterator(opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var places [][]byte
	for it.First(); it.Valid(); it.Next() {
		if len(it.Value()) != 8 {
			return fmt.Errorf("%w: %x", ErrDamaged, it.Key())
		}
		created := int64(binary.BigEndian.Uint64(it.Value()))
		if m.f.CreatedAfter > 0 && created <= m.f.CreatedAfter || m.f.CreatedBefore > 0 && created >= m.f.CreatedBefore {
			continue
		}
		if places = append(places, appendPlace(nil, created, string(it.Key()[1:]))); len(places) > maxPrefixed {
			return nil
		}
	}
	sortPlaces(places)
	m.spans = append([]span{&few{places: places}}, m.spans...)
	return it.Error()
}

// after returns the first key behind all keys with a prefix that does not begin with 0xff.
func after(prefix []byte) []byte {
	end := bytes.TrimRight(prefix, "\xff")
	end = bytes.Clone(end)
	end[len(end)-1]++
	return end
}

// next finds the next run. It returns false at the end, and when the bound on rows is reached.
func (m *meeting) next() bool {
	if m.found {
		m.at.moveBehind(m.place)
	}
	m.found = false
	for met := 0; met < len(m.spans); {
		if m.looks <= 0 {
			return false
		}
		s := m.spans[met]
		found, looks := s.seek(&m.at)
		m.looks -= looks
		if !found {
			m.ended = true
			return false
		}
		if m.at.moveTo(s.place()) && met > 0 {
			met = 0 // begin with the first span again
			continue
		}
		met++
	}
	m.place, m.found = append(m.place[:0], m.spans[0].place()...), true
	return true
}

// row returns the row of the run found, and whether the filter asks for the run.
func (m *meeting) row() (row listRow, wanted bool, err error) {
	row, ok := parseListRow(m.list.it.Value())
	if !ok || len(m.place) < placeHeader {
		return row, false, fmt.Errorf("%w: %x", ErrDamaged, m.place)
	}
	return row, m.prefixed() && row.match(m.want, m.f), nil
}

// prefixed reports whether the run found has the filter's runId prefix.
func (m *meeting) prefixed() bool { return strings.HasPrefix(m.runID(), m.f.RunIDPrefix) }

func (m *meeting) runID() string { return string(m.place[min(placeHeader, len(m.place)):]) }

// rest returns the place behind the run found, nil when no run follows.
func (m *meeting) rest() []byte {
	m.at.moveBehind(m.place)
	if more, _ := m.spans[0].seek(&m.at); !more {
		return nil
	}
	return m.at.limit
}

func (m *meeting) close() error {
	var errs []error
	for _, s := range m.spans {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}
