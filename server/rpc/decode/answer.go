package decode

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"runlog/server/budget"
)

const (
	// readTimeout and slowest bound how long a client may take to read an answer: the time, and
	// more for a large answer, at so many bytes a second.
	readTimeout = 30 * time.Second
	slowest     = 64 << 10
)

// large is an answer with its part of the budget. It is released when gRPC has sent the answer, or
// when its connection is gone.
type large struct {
	message proto.Message
	grant   budget.Grant
	cut     func()
	late    time.Duration
	// stream is that of the answer; nil: the call has one answer.
	stream *guardedStream
}

// answer returns an answer as gRPC has to encode it. One of more than budget.Uncounted bytes draws
// from the budget until its reader has taken it. Error: OVERLOADED.
func (g *Guard) answer(ctx context.Context, resp any) (any, error) {
	m, ok := resp.(proto.Message)
	if !ok || g.limits.Memory == nil {
		return resp, nil
	}
	if _, connected := grpc.ServerTransportStreamFromContext(ctx).(incoming); !connected {
		return resp, nil
	}
	size := proto.Size(m)
	if size <= budget.Uncounted {
		return resp, nil
	}
	grant, err := g.limits.Memory.Acquire(budget.Shared, int64(size))
	if err != nil {
		return nil, g.encode(err)
	}
	a := &large{message: m, grant: grant, late: readTimeout + time.Duration(size/slowest)*time.Second}
	if g.limits.ReadTimeout > 0 {
		a.late = g.limits.ReadTimeout
	}
	if p, ok := peer.FromContext(ctx); ok && g.limits.Cut != nil && p.Addr != nil {
		a.cut = func() { g.limits.Cut(p.Addr) }
	}
	return a, nil
}

// encoded is the buffer pool of one encoded answer: gRPC returns the buffer when it has sent it.
type encoded struct {
	mu    sync.Mutex
	grant budget.Grant
	ended bool // released
	late  *time.Timer
	gone  func() bool // ends the wait for the end of its stream; nil: none
}

var _ mem.BufferPool = (*encoded)(nil)

// Get implements mem.BufferPool.
func (*encoded) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put releases the answer.
func (e *encoded) Put(*[]byte) { e.release() }

func (e *encoded) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	e.ended = true
	e.late.Stop()
	e.grant.Release()
	if e.gone != nil {
		e.gone()
	}
}

// drop releases an answer that gRPC has not encoded.
func (a *large) drop() { a.grant.Release() }

// marshal encodes the answer. If its reader does not take it in time, the connection is closed.
func (a *large) marshal() (mem.BufferSlice, error) {
	text, err := proto.Marshal(a.message)
	if err != nil {
		a.grant.Release()
		return nil, err
	}
	e := &encoded{grant: a.grant}
	a.grant = budget.Grant{}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.late = time.AfterFunc(a.late, func() {
		if a.cut != nil {
			a.cut()
		}
		e.release()
	})
	if s := a.stream; s != nil {
		// gRPC does not always return the answers of a stream that its client has ended.
		e.gone = context.AfterFunc(s.Context(), func() {
			if !s.answered.Load() {
				e.release()
			}
		})
	}
	return mem.BufferSlice{mem.NewBuffer(&text, e)}, nil
}
