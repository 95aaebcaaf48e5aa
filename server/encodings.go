package server

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
)

// encodings keeps snapshots as they go over the wire, for those who read or watch a run that does
// not change meanwhile: to make the message of 50 steps and to encode it costs many times what it
// costs to copy the bytes. What is kept lies with its snapshot and goes with it, or when there is
// more than the limit; what was kept first goes first.
type encodings struct {
	limit int // bytes

	mu    sync.Mutex
	queue []encoding
	bytes int // in queue
}

type encoding struct {
	place *atomic.Pointer[[]byte]
	data  *[]byte
}

// message returns the snapshot's message, to which the caller may add: it is the caller's, and what
// it shares is in fields that are sent as they are
// (https://protobuf.dev/programming-guides/proto3/#unknowns).
func (e *encodings) message(s *run.Snapshot) *runlogv1.RunSnapshot {
	place := s.Encoded()
	if place == nil {
		return encodeSnapshot(s)
	}
	data := place.Load()
	if data == nil {
		m := encodeSnapshot(s)
		encoded, err := proto.Marshal(m)
		if err != nil || len(encoded) > e.limit/16 {
			return m // sending it says what is wrong with it
		}
		data = &encoded
		if place.CompareAndSwap(nil, data) {
			e.keep(encoding{place, data})
		}
	}
	m := new(runlogv1.RunSnapshot)
	m.ProtoReflect().SetUnknown(*data)
	return m
}

func (e *encodings) keep(one encoding) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, one)
	e.bytes += len(*one.data)
	for e.bytes > e.limit {
		first := e.queue[0]
		e.queue[0] = encoding{}
		e.queue = e.queue[1:]
		first.place.CompareAndSwap(first.data, nil)
		e.bytes -= len(*first.data)
	}
}
