package delivery

import (
	"errors"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// source reads events of a run for the window of a subscriber.
type source struct{ s *subscriber }

// Load is window.Source's.
func (x *source) Load(runID string, after uint64, through storage.Position, n int) (list []*window.Event, more bool, err error) {
	v, err := x.s.term.store.View(runID)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	f := x.s.filter()
	if !f.wants(v.Run) {
		return nil, false, nil
	}
	now := &labels{store: x.s.term.store, runID: runID}
	if ok, err := f.labelled(now); err != nil || !ok {
		return nil, false, err
	}
	read := 0
	for e, err := range v.Events(after) {
		if err != nil {
			return nil, false, err
		}
		if e.Position > through {
			return list, false, nil
		}
		if len(list) == n || read == maxLoad && len(list) > 0 {
			return list, true, nil
		}
		read++
		if ok, err := f.matches(e, now); err != nil {
			return nil, false, err
		} else if ok {
			list = append(list, window.Alone(v.Run, e))
		}
	}
	return list, false, nil
}

// maxLoad bounds the events of a run that are read at a time, once one matches.
const maxLoad = 1024

// Letter is window.Source's. The event matched before it was parked. The filter may be another one
// since, or the labels of the run, but only a delivery or a discard removes a dead letter (BUS-5).
func (x *source) Letter(runID string, seq uint64) (found *window.Event, err error) {
	v, err := x.s.term.store.View(runID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	for e, err := range v.Events(seq - 1) {
		if err != nil {
			return nil, err
		}
		if e.RunSeq == seq {
			found = window.Alone(v.Run, e)
		}
		break
	}
	return found, nil
}
