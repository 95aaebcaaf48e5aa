package outbox

import (
	"slices"
	"time"
)

// state is where a record is in its life.
type state byte

const (
	pending state = iota
	rejected
	removed
)

// entry is a record of the index. Its request stays in the file.
type entry struct {
	id     uint64
	offset int64 // of its put frame
	size   int   // of the same, in bytes
	state  state
	// Of a rejected record.
	reason     string
	rejectedAt time.Time
}

// bytes is the size of what a new file has of the record, or a little more.
func (e *entry) bytes() int64 {
	if e.state == rejected {
		return int64(e.size + frameBytes(len(e.reason)))
	}
	return int64(e.size)
}

// rejection returns the frame that makes the record a rejected one.
func (e *entry) rejection() frame {
	return frame{kind: kindReject, id: e.id, at: e.rejectedAt, data: []byte(e.reason)}
}

// index has the live records in the order of their ids.
//
// Invariant: byID has the entries of order that are not removed, and counts are theirs.
type index struct {
	order []*entry
	byID  map[uint64]*entry
	bytes int64 // of the live records
	count [removed]int
}

func newIndex() *index { return &index{byID: map[uint64]*entry{}} }

// add adds a record, whose id is above those of all others.
func (x *index) add(e *entry) {
	x.order = append(x.order, e)
	x.byID[e.id] = e
	x.bytes += e.bytes()
	x.count[e.state]++
}

// reject marks a pending record and reports whether there was one.
func (x *index) reject(id uint64, at time.Time, reason string) bool {
	e := x.byID[id]
	if e == nil || e.state != pending {
		return false
	}
	x.count[pending]--
	x.count[rejected]++
	x.bytes -= e.bytes()
	e.state, e.reason, e.rejectedAt = rejected, reason, at
	x.bytes += e.bytes()
	return true
}

// remove removes a record in a state and reports whether there was one.
func (x *index) remove(id uint64, from state) bool {
	e := x.byID[id]
	if e == nil || e.state != from {
		return false
	}
	x.count[from]--
	x.bytes -= e.bytes()
	e.state = removed
	delete(x.byID, id)
	if len(x.order) > 64 && len(x.order) > 2*len(x.byID) {
		x.order = slices.DeleteFunc(slices.Clone(x.order), func(e *entry) bool { return e.state == removed })
	}
	return true
}

// next returns the first record above an id that is in a state; nil: there is none.
func (x *index) next(above uint64, in state) *entry {
	at, _ := slices.BinarySearchFunc(x.order, above+1, func(e *entry, id uint64) int {
		switch {
		case e.id < id:
			return -1
		case e.id > id:
			return 1
		default:
			return 0
		}
	})
	for _, e := range x.order[at:] {
		if e.state == in {
			return e
		}
	}
	return nil
}

// live returns the records that are not removed, in their order.
func (x *index) live() []*entry {
	out := make([]*entry, 0, len(x.byID))
	for _, e := range x.order {
		if e.state != removed {
			out = append(out, e)
		}
	}
	return out
}
