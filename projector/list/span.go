package list

import (
	"bytes"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// span is a sequence of places that a search can skip along.
type span interface {
	// seek moves to the first place that is not passed. It reports whether there is one, and how
	// much work that was, in looks.
	seek(c *cursor) (found bool, looks int)
	place() []byte
	close() error
}

// cursor is the place of a search. All places on one side of the limit are passed: those before it,
// or, in a list from the oldest on, those at it and behind it. A place and a zero byte follow each
// other directly, so that either limit can include a place or leave it out.
type cursor struct {
	oldest bool
	limit  []byte // nil: no place is passed
}

// passed reports whether a place is passed.
func (c *cursor) passed(place []byte) bool {
	if c.limit == nil {
		return false
	}
	return (bytes.Compare(place, c.limit) < 0) != c.oldest
}

// moveTo makes a place the first one that is not passed. It reports whether that changes anything.
func (c *cursor) moveTo(place []byte) bool {
	if c.at(place) {
		return false
	}
	c.limit = append(c.limit[:0], place...)
	if c.oldest {
		c.limit = append(c.limit, 0)
	}
	return true
}

// at reports whether a place is the first one that is not passed.
func (c *cursor) at(place []byte) bool {
	if !c.oldest {
		return c.limit != nil && bytes.Equal(c.limit, place)
	}
	return follows(c.limit, place)
}

// moveBehind passes a place.
func (c *cursor) moveBehind(place []byte) {
	c.limit = append(c.limit[:0], place...)
	if !c.oldest {
		c.limit = append(c.limit, 0)
	}
}

// follows reports whether a limit is a place and a zero byte.
func follows(limit, place []byte) bool {
	last := len(limit) - 1
	return last == len(place) && limit[last] == 0 && bytes.Equal(limit[:last], place)
}

// seekLooks is how many looks a seek in a table counts as; a step to the next row is one.
const seekLooks = 3

// rows is the span of a table: the runs with some values.
type rows struct {
	it     *pebble.Iterator
	prefix int    // bytes of key that all keys begin with
	key    []byte // of the last seek
}

func (r *rows) seek(c *cursor) (bool, int) {
	switch {
	case c.oldest && c.limit == nil:
		return r.it.Last(), seekLooks
	case c.oldest && r.it.Valid() && bytes.Equal(r.place(), c.limit):
		return r.it.Prev(), 1 // The place right behind the current run needs a step only.
	case !c.oldest && r.it.Valid() && follows(c.limit, r.place()):
		return r.it.Next(), 1
	}
	r.key = append(r.key[:r.prefix], c.limit...)
	if c.oldest {
		return r.it.SeekLT(r.key), seekLooks
	}
	return r.it.SeekGE(r.key), seekLooks
}

func (r *rows) place() []byte { return r.it.Key()[r.prefix:] }
func (r *rows) close() error  { return r.it.Close() }

// union is the span of all places of some spans, which have no place in common.
type union struct {
	parts []span
	ended []bool
	begun bool
	first span // the part whose place comes first
}

func (u *union) seek(c *cursor) (bool, int) {
	looks := 0
	u.first = nil
	for i, part := range u.parts {
		if u.ended[i] {
			continue
		}
		if !u.begun || c.passed(part.place()) {
			found, n := part.seek(c)
			u.ended[i], looks = !found, looks+n
			if !found {
				continue
			}
		}
		if u.first == nil || (bytes.Compare(part.place(), u.first.place()) < 0) != c.oldest {
			u.first = part
		}
	}
	u.begun = true
	return u.first != nil, max(1, looks)
}

func (u *union) place() []byte { return u.first.place() }

func (u *union) close() error {
	var errs []error
	for _, part := range u.parts {
		errs = append(errs, part.close())
	}
	return errors.Join(errs...)
}

// few is a span of places in memory, newest first.
type few struct {
	places [][]byte
	found  []byte
}

func (f *few) seek(c *cursor) (bool, int) {
	i, n := 0, len(f.places)
	if c.limit != nil {
		i, _ = slices.BinarySearchFunc(f.places, c.limit, bytes.Compare)
	} else if c.oldest {
		i = n
	}
	if c.oldest {
		i-- // The limit is behind the place.
	}
	if i < 0 || i >= n {
		return false, 1
	}
	f.found = f.places[i]
	return true, 1
}

func (f *few) place() []byte { return f.found }
func (f *few) close() error  { return nil }

// sortPlaces sorts places as keys do.
func sortPlaces(places [][]byte) {
	slices.SortFunc(places, bytes.Compare)
}
