package delivery

import (
	"fmt"
	"strconv"
	"strings"

	"runlog/server/subscriptions/window"
	"runlog/storage/machine/subscription"
)

// Delivery is an event that a consumer gets.
type Delivery struct {
	window.Delivery
	sought uint64
}

// Ref returns what an acknowledgement of the delivery names.
func (d *Delivery) Ref() Ref {
	return Ref{window.Place{RunID: d.Run.RunID, Seq: d.Record.RunSeq}, d.sought}
}

// Ref names an event since a seek.
type Ref struct {
	window.Place
	// Sought is the version of the cursor after the last seek before the delivery, as far as the
	// leader knew; 0: it knew of none.
	Sought uint64
}

// String is the deliveryId: runSeq-runId, or after a seek runSeq.version-runId.
func (r Ref) String() string { return string(r.Append(nil)) }

// Append appends the deliveryId.
func (r Ref) Append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, r.Seq, 10)
	if r.Sought > 0 {
		dst = strconv.AppendUint(append(dst, '.'), r.Sought, 10)
	}
	return append(append(dst, '-'), r.RunID...)
}

// ParseRef is the inverse of Ref.String.
func ParseRef(id string) (Ref, error) {
	place, run, ok := strings.Cut(id, "-")
	seq, version, sought := strings.Cut(place, ".")
	r := Ref{Place: window.Place{RunID: run}}
	var err error
	if r.Seq, err = strconv.ParseUint(seq, 10, 64); err == nil && sought {
		r.Sought, err = strconv.ParseUint(version, 10, 64)
	}
	if !ok || err != nil || r.Seq == 0 || run == "" {
		return Ref{}, fmt.Errorf("%.100q is not a deliveryId: send one as a delivery has it", id)
	}
	return r, nil
}

// noteSeek remembers a seek after which nothing was settled, by the cursor that it leaves: at its
// begin, without runs that owe events. Rarely a settlement leaves such a cursor: then what was
// handed out before it is delivered again.
func (s *subscriber) noteSeek(row *subscription.Subscription) {
	if row.CursorVersion > 0 && row.Position == row.Began && row.OwedRuns == 0 {
		s.sought = row.CursorVersion
	}
}

// places returns the events of deliveries since the last seek. Those of earlier leaders count
// too, unless this one has seen a seek after them: versions of a cursor only rise.
func (s *subscriber) places(list []Ref) (places []window.Place) {
	for _, r := range list {
		if r.Sought >= s.sought {
			places = append(places, r.Place)
		}
	}
	return places
}
