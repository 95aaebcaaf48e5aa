package events_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
	"runlog/testbed/bubble/property"
)

// TestProducersAtOnce: several producers send at the same time with AppendEvents, BatchAppend and
// AppendStream. They retry, reorder and duplicate requests, set conditions, send invalid events,
// and the node restarts. Every run then has:
//
//   - one record per key (IDM-1 to IDM-4, IDM-6, IDM-8), in rising order without gaps (APP-1)
//
//   - complete requests only (APP-3, APP-8), with conditions kept (APP-4) and safe retries (APP-10)
//
//   - one answer to all duplicates forever (IDM-6, IDM-7)
//
//   - records that never change (APP-7), and a chain that an outsider can verify (APP-11).
func TestProducersAtOnce(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		property.Check(t, func(rt *rapid.T) {
			s := drawScenario(rt)
			c := startCrew(t, rapid.SampledFrom([]int{1, 0}).Draw(rt, "active bytes"))
			defer c.end()
			for i, r := range s.rounds {
				c.play(r)
				if err := errors.Join(c.ledger.faults(), c.judge(s)); err != nil {
					rt.Fatalf("round %d: %v", i, err)
				}
			}
			// The answers and records stay the same forever, now and after a restart.
			before := c.sendAllAgain(s)
			c.restart()
			if err := c.judge(s); err != nil {
				rt.Fatalf("after a restart: %v", err)
			}
			after := c.sendAllAgain(s)
			if err := errors.Join(c.ledger.faults(), c.judge(s)); err != nil {
				rt.Fatalf("everything sent again: %v", err)
			}
			for i := range before {
				if before[i] != after[i] {
					rt.Fatalf("answer to retry %d after a restart:\n%q, before:\n%q", i, after[i], before[i])
				}
			}
		})
	})
}

// clients is the producers of a scenario and the node to which they send.
type clients struct {
	node   *servertest.Node
	link   atomic.Pointer[link]
	ledger ledger
	read   map[string][]*runlogv1.EventRecord // what each run had when it was last read
}

// link is a connection to the node as it is between two restarts.
type link struct {
	conn   *grpc.ClientConn
	events runlogv1.EventServiceClient
}

func startCrew(t testing.TB, activeBytes int) *clients {
	c := &clients{read: map[string][]*runlogv1.EventRecord{}}
	c.ledger.init()
	c.node = servertest.Start(t, func(o *server.Options) {
		o.Store.ActiveBytes = activeBytes // 1: receipts are read from disk, always
		o.MaxPayloadBytes = maxDrawnPayload
	})
	c.connect()
	return c
}

// connect makes a connection that does not come back by itself: another test's node may have the
// port next.
func (c *clients) connect() {
	var dialed atomic.Bool
	conn := c.node.DialWith(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, errors.New("this connection is over")
		}
		return c.node.DialTo(ctx, address)
	}))
	if old := c.link.Swap(&link{conn, runlogv1.NewEventServiceClient(conn)}); old != nil {
		_ = old.conn.Close()
	}
}

func (c *clients) restart() {
	c.node.Restart()
	c.connect()
}

func (c *clients) end() {
	_ = c.link.Load().conn.Close()
	c.node.Close()
}

// play lets all producers of a round do their tasks, and restarts the node among it.
func (c *clients) play(r round) {
	var done sync.WaitGroup
	answered := make(chan struct{}, 1<<16)
	for _, tasks := range r.producers {
		done.Go(func() {
			for _, task := range tasks {
				c.do(task, answered)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		done.Wait()
		close(over)
	}()
	for left := r.restartAfter; left > 0; left-- {
		select {
		case <-answered:
		case <-over:
			left = 0
		}
	}
	if r.restartAfter >= 0 {
		c.restart()
	}
	<-over
}

// do makes a call and, for the requests that have no answer because the node went away, makes it
// again (APP-10).
func (c *clients) do(task task, answered chan<- struct{}) {
	deadline := time.Now().Add(servertest.Patience)
	for pending := task.sends; len(pending) > 0; {
		l := c.link.Load()
		calls := make([]*call, len(pending))
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		l.once(ctx, task.kind, &c.ledger, pending, calls)
		cancel()
		pending = nil
		if err := inOrder(calls); err != nil {
			c.ledger.fault("%s: %w", task.kind, err)
		}
		for _, call := range calls {
			switch {
			case !transient(call.err):
				c.ledger.settle(call)
				answered <- struct{}{}
			case time.Now().After(deadline):
				c.ledger.fault("%s: no answer within %v: %v", call.send.run, servertest.Patience, call.err)
			default:
				c.ledger.lose(call.send)
				pending = append(pending, call.send)
			}
		}
		if len(pending) > 0 && c.link.Load() == l {
			time.Sleep(time.Millisecond) // the node is on its way down or up
		}
	}
}

// inOrder wants the requests of a call to be stored in their order, run by run (APP-3, APP-8).
func inOrder(calls []*call) error {
	last := map[string]uint64{}
	for _, call := range calls {
		for _, r := range call.results {
			if r.Persisted && r.RunSeq <= last[call.send.run] {
				return fmt.Errorf("%s: runSeq %d after %d", call.send.run, r.RunSeq, last[call.send.run])
			}
			if r.Persisted {
				last[call.send.run] = r.RunSeq
			}
		}
	}
	return nil
}

// transient reports whether a call had no answer, or was refused, because the node stopped.
func transient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled:
		return true
	default:
		return false
	}
}

// call is one try of one send.
type call struct {
	send    *send
	req     *runlogv1.AppendEventsRequest
	floor   uint64 // the run's lastSeq had been in an answer before the call
	settled bool   // all of its events had been
	results []*runlogv1.AppendResult
	lastSeq uint64
	err     error
}

func (c *call) answer(results []*runlogv1.AppendResult, lastSeq uint64, err error) {
	c.results, c.lastSeq, c.err = results, lastSeq, err
}

// once makes a call of a kind for all sends and fills in what came of each.
func (l *link) once(ctx context.Context, kind string, book *ledger, sends []*send, calls []*call) {
	switch kind {
	case "batch":
		l.batch(ctx, book, sends, calls)
	case "stream":
		l.stream(ctx, book, sends, calls)
	default:
		for i, s := range sends {
			calls[i] = book.begin(s)
			resp, err := l.events.AppendEvents(ctx, calls[i].req)
			calls[i].answer(resp.GetResults(), resp.GetLastSeq(), err)
		}
	}
}

func (l *link) batch(ctx context.Context, book *ledger, sends []*send, calls []*call) {
	req := &runlogv1.BatchAppendRequest{}
	for i, s := range sends {
		calls[i] = book.begin(s)
		req.Requests = append(req.Requests, calls[i].req)
	}
	resp, err := l.events.BatchAppend(ctx, req)
	if err == nil && len(resp.Outcomes) != len(calls) {
		err = fmt.Errorf("%d outcomes for %d requests", len(resp.Outcomes), len(calls))
	}
	for i, call := range calls {
		if err != nil {
			call.err = err
			continue
		}
		o := resp.Outcomes[i]
		call.answer(o.Results, o.LastSeq, status.ErrorProto(o.Status))
	}
}

// stream sends all requests without waiting and takes the answers in their order (APP-8).
func (l *link) stream(ctx context.Context, book *ledger, sends []*send, calls []*call) {
	for i, s := range sends {
		calls[i] = &call{send: s, err: status.Error(codes.Unavailable, "not sent")}
	}
	stream, err := l.events.AppendStream(ctx)
	if err != nil {
		return
	}
	sent := make(chan struct{}, len(sends))
	go func() {
		defer close(sent)
		for i, s := range sends {
			begun := book.begin(s)
			*calls[i] = *begun
			req := proto.CloneOf(begun.req)
			req.RequestId = fmt.Sprint("request ", i)
			if stream.Send(req) != nil {
				calls[i].err = status.Error(codes.Unavailable, "the stream is over")
				return // why is what Recv tells
			}
			sent <- struct{}{}
		}
		_ = stream.CloseSend()
	}()
	for i := range sends {
		if _, ok := <-sent; !ok {
			break
		}
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			err = fmt.Errorf("the stream ended before answer %d", i)
		case err == nil && resp.RequestId != fmt.Sprint("request ", i):
			err = fmt.Errorf("answer %d is to %q", i, resp.RequestId)
		case err == nil:
			err = status.ErrorProto(resp.Status)
		}
		calls[i].answer(resp.GetResults(), resp.GetLastSeq(), err)
	}
	for range sent { // until the sender has ended
	}
}
