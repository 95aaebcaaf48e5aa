package main

import (
	"errors"
	"net"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/bench/target"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// parse checks the events of a request and derives their keys, which is the adapter's work where
// the store does not know the contract. Events whose key comes twice refer to the first one: twins
// tells which.
func parse(req *runlogv1.AppendEventsRequest) (events []contract.Event, twins map[int]int, err error) {
	events, err = contract.ValidateAll(req.Events, contract.Options{RunID: req.RunId})
	if err != nil || len(events) == 1 {
		return events, nil, err
	}
	first := make(map[string]int, len(events))
	for i := range events {
		if at, twice := first[events[i].IdempotencyKey]; twice {
			if twins == nil {
				twins = make(map[int]int)
			}
			twins[i] = at
			continue
		}
		first[events[i].IdempotencyKey] = i
	}
	return events, twins, nil
}

// stored is what a store said about an event.
type stored struct {
	eventID   contract.EventID
	seq       uint64
	persisted time.Time // zero: the store does not tell
	inserted  bool
}

// answer makes an answer of what was stored; twins take that of their first.
func answer(all []stored, twins map[int]int) *runlogv1.AppendEventsResponse {
	res := &runlogv1.AppendEventsResponse{Results: make([]*runlogv1.AppendResult, len(all))}
	for i, s := range all {
		if at, twin := twins[i]; twin {
			s = all[at]
			s.inserted = false
		}
		r := &runlogv1.AppendResult{EventId: s.eventID.String(), RunSeq: s.seq, Persisted: s.inserted, Idempotent: !s.inserted}
		if !s.persisted.IsZero() {
			r.PersistedAt = timestamppb.New(s.persisted)
		}
		res.Results[i] = r
		res.LastSeq = max(res.LastSeq, s.seq)
	}
	return res
}

// failed gives an error a reason to be counted by.
func failed(reason string, err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(&target.AnswerError{Reason: reason, Message: reason}, err)
}

// freePort finds a port of loopback without a listener. Another process may take it before it
// is used; then its server does not start and says so.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}
