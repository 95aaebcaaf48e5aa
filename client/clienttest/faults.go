package clienttest

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/proto/contract"
	"runlog/server/rpc"
)

// faults is what happens to writes on their path.
type faults struct {
	mu       sync.Mutex
	twice    bool
	delay    time.Duration
	lose     int
	refusals []contract.Reason // one for each write to refuse
}

// plan is what happens to one write.
type plan struct {
	refusal *contract.Error // nil: the server answers
	times   int             // deliveries to the server; 0 with a refusal
	due     time.Time       // the answer does not leave before
	lose    bool            // the connection breaks in place of the answer
}

// next returns the plan of a write that arrives now.
func (f *faults) next() plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := plan{due: time.Now().Add(f.delay)}
	if len(f.refusals) > 0 {
		p.refusal = refusal(f.refusals[0])
		f.refusals = f.refusals[1:]
		return p
	}
	p.times = 1
	if f.twice {
		p.times = 2
	}
	if f.lose > 0 {
		f.lose--
		p.lose = true
	}
	return p
}

// wait returns when the answer of the write is due, or when ctx ends.
func (p *plan) wait(ctx context.Context) {
	select {
	case <-time.After(time.Until(p.due)):
	case <-ctx.Done():
	}
}

// refusal returns the error of a server that refuses a write.
func refusal(r contract.Reason) *contract.Error {
	e := &contract.Error{Reason: r, Message: rpc.Helpful(r, "the test refuses this request")}
	if e.Code() == codes.ResourceExhausted {
		e.RetryAfter = rpc.OverloadDelay
	}
	return e
}

// DuplicateRequests sends every write to the server twice, from now on or no longer, as a client
// does that has lost an answer. The client gets the second answer: what was stored is idempotent
// (IDM-6).
func (s *Server) DuplicateRequests(on bool) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.twice = on
}

// Delay holds the answer to each write back until d after the write has arrived. The server stores
// it without delay. The answers of a stream wait at the same time, and keep their order. 0 ends the
// delay.
func (s *Server) Delay(d time.Duration) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.delay = d
}

// LoseAnswers lets the server answer each of the next n writes, and then closes the connection of
// the client in place of the answer. All calls on that connection break. 0 ends it.
func (s *Server) LoseAnswers(n int) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.lose = n
}

// Refuse refuses the next n writes, or n more, with a reason of the contract: with its code, its
// message and its retry delay (docs/errors.md). Nothing is stored. An error has no facts, such as
// the last_seq of a SEQUENCE_CONFLICT: for these, send what the server itself refuses.
func (s *Server) Refuse(reason contract.Reason, n int) {
	s.t.Helper()
	if reason.Info().Code == codes.Internal {
		s.t.Fatalf("clienttest: the contract has no reason %q", reason)
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	for range n {
		s.faults.refusals = append(s.faults.refusals, reason)
	}
}
