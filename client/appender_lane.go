package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"runlog/client/internal/fifo"
	"runlog/client/internal/wire"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// laneTick is the time between two looks at a stream.
	laneTick = time.Second
	// A stream is lost if messages are in flight and no answer comes for laneSilence, and laneByte
	// for each of their bytes: a slow network is not silent. It is closed after laneIdle without
	// messages. After laneAge it is opened again: only a new stream learns of another leader.
	laneSilence = 10 * time.Second
	laneByte    = 4 * time.Microsecond
	laneIdle    = time.Minute
	laneAge     = 2 * time.Minute
)

var appendStream = &runlogv1.EventService_ServiceDesc.Streams[0]

// lane sends messages over one stream at a time. Any lane takes any message: a run has only one in
// flight.
type lane struct {
	a *Appender

	// Of the current stream, guarded by the mutex of the queue.
	node     *node             // nil: none is open
	inFlight fifo.Queue[*line] // in the order of the answers
	bytes    int               // of the messages in flight
	over     bool              // the stream takes no more messages
	answers  int               // so far
	moved    time.Time         // of the last message or answer
}

// run serves streams until the Appender ends. There is a stream only while there is work.
func (l *lane) run() {
	for l.awaitWork() {
		l.serve()
	}
}

func (l *lane) awaitWork() bool {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	for l.a.ready.Len() == 0 && !l.a.ended {
		l.a.changed.Wait()
	}
	l.over, l.answers, l.bytes, l.moved = false, 0, 0, time.Now()
	return !l.a.ended
}

// serve opens a stream and uses it until it ends.
func (l *lane) serve() {
	ctx, cancel := context.WithCancelCause(l.a.ctx)
	defer cancel(nil)
	stream, err := l.a.client.nodes.openStream(ctx, appendStream, runlogv1.EventService_AppendStream_FullMethodName, grpc.ForceCodecV2(wire.Codec))
	if err != nil {
		l.unopened(newError(l.a.ctx, err))
		return
	}
	l.a.mu.Lock()
	l.node = stream.node
	l.a.mu.Unlock()
	received := make(chan error, 1)
	go func() {
		received <- l.receive(stream)
		cancel(nil) // A server that answers wrongly may read no more.
	}()
	go l.watch(ctx, cancel)
	for message := l.next(); message != nil; message = l.next() {
		if stream.SendMsg(message) != nil {
			break // receive gets the cause
		}
	}
	_ = stream.CloseSend() // never fails
	err = <-received
	if errors.Is(context.Cause(ctx), errSilent) {
		err = grpcstatus.Errorf(codes.Unavailable, "the server sent no answer for %v", laneSilence)
	}
	l.lost(stream, err)
}

// next returns the next message, or nil if the stream takes no more.
func (l *lane) next() wire.Message {
	a := l.a
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if l.over || a.ended {
			return nil
		}
		if l.inFlight.Len() < a.opts.MaxInFlight {
			if run := a.take(); run != nil {
				if l.inFlight.Len() == 0 {
					l.moved = time.Now()
				}
				message := run.message()
				l.inFlight.Push(run)
				l.bytes += len(message)
				run.bytes = len(message)
				a.client.opts.Observer.Sent(run.events)
				return message
			}
		}
		a.changed.Wait()
	}
}

// receive hands out the answers until the stream ends, and returns its error.
func (l *lane) receive(stream *nodeStream) error {
	for {
		answer := &runlogv1.AppendStreamResponse{}
		err := stream.RecvMsg(answer)
		if err == nil {
			var lasting []string
			lasting, err = l.answer(stream, answer)
			l.a.client.retries.answered(lasting) // not under the mutex: a logger may be slow
		}
		if err != nil {
			l.finish()
			return err
		}
	}
}

// finish lets the stream take no more messages.
func (l *lane) finish() {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	l.over = true
	l.a.changed.Broadcast()
}

// answer hands out the answer to the oldest message in flight. lasting has the names of failures
// that are over with it. An error means that the server does not keep to the protocol.
func (l *lane) answer(stream *nodeStream, answer *runlogv1.AppendStreamResponse) (lasting []string, err error) {
	a := l.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.answers++; l.answers == 1 {
		stream.learn()
	}
	if l.inFlight.Len() == 0 {
		return nil, errors.New("client: the server answered a message that was never sent")
	}
	failed := answer.GetStatus().GetCode() != 0
	if first := l.inFlight.First(); !failed && len(answer.GetResults()) != first.events {
		return nil, fmt.Errorf("client: the server answered for %d of %d events", len(answer.GetResults()), first.events)
	}
	run := l.inFlight.Pop()
	l.bytes -= run.bytes
	l.moved = time.Now()
	if l.inFlight.Len() == a.opts.MaxInFlight-1 {
		a.changed.Broadcast()
	}
	if failed {
		l.refused(stream, run, answer.GetStatus())
		return nil, nil
	}
	results := answer.GetResults()
	a.settled(run, func(c *pending) bool {
		c.res = Result{Events: results[:c.events:c.events], LastSeq: answer.GetLastSeq(), Position: answer.GetPosition()}
		results = results[c.events:]
		for _, name := range c.lasting {
			lasting = add(lasting, name)
		}
		a.release(c)
		return true
	})
	a.client.reached.Store(true)
	a.rest(run)
	return lasting, nil
}

// refused handles a message that the server has not stored, or may not have stored.
func (l *lane) refused(stream *nodeStream, run *line, st *status.Status) {
	a, err := l.a, grpcstatus.ErrorProto(st)
	e := newError(a.ctx, err)
	switch {
	case e.Retryable():
		if e.Code == codes.Unavailable { // the leader has changed, or another node knows more
			a.client.nodes.judge(a.ctx, stream.node, err)
			l.over = true
			a.changed.Broadcast()
			a.reconsider()
		}
		a.again(run, e, e.unknown())
		return
	default: // if they are several, one of them is at fault, and the others are not
		several := run.sent > 1
		a.settled(run, func(c *pending) bool {
			c.alone, c.unknown = several, c.unknown || e.unknown()
			return (c.left || !several) && a.fails(c, e)
		})
	}
	a.rest(run)
}

// again lets the appends of a message be tried again after a while.
func (a *Appender) again(run *line, e *Error, unknown bool) {
	if e.Reason != "" || e.Code != codes.Unavailable {
		a.client.reached.Store(true)
	}
	tries := 0
	again := a.settled(run, func(c *pending) bool {
		c.tries++
		c.unknown, c.last = c.unknown || unknown, e
		if c.tries > usual {
			c.lasting = add(c.lasting, e.Name())
		}
		if c.left || a.ended || !e.Retryable() || a.client.exhausted(c.tries) {
			return a.fails(c, e)
		}
		tries = max(tries, c.tries)
		return false
	})
	if !again {
		a.rest(run)
		return
	}
	wait := a.client.opts.delay(e, tries)
	time.AfterFunc(wait, func() {
		a.client.retries.note(a.ctx, e, tries, wait) // not under the mutex: a logger may be slow
		a.mu.Lock()
		defer a.mu.Unlock()
		a.rest(run)
	})
}

// unopened is for a stream that could not be opened: nothing was sent. It counts as a try of each
// append that is ready.
func (l *lane) unopened(e *Error) {
	a := l.a
	a.mu.Lock()
	defer a.mu.Unlock()
	for range a.ready.Len() {
		if run := a.take(); run != nil {
			a.again(run, e, false)
		}
	}
}

// lost is for a stream that has ended. Messages in flight have no answer.
func (l *lane) lost(stream *nodeStream, err error) {
	a := l.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if errors.Is(err, io.EOF) {
		err = grpcstatus.Error(codes.Unavailable, "the server ended the stream")
	}
	e := newError(a.ctx, err)
	if a.ended {
		e = &Error{Code: codes.Canceled, Message: "the Appender was closed", causes: []error{ErrClosed}}
	}
	l.node = nil
	a.reconsider()
	unknown := stream.mayHaveTakenEffect(e)
	for l.inFlight.Len() > 0 {
		a.again(l.inFlight.Pop(), e, unknown)
	}
}

// reconsider lets streams on nodes that are not the choice for appends, or not any more, take no
// more messages: after a failure, their node may be the one that is at fault.
func (a *Appender) reconsider() {
	for _, l := range a.lanes {
		if l.node != nil && !l.over && !a.client.nodes.suits(l.node) {
			l.over = true
			a.changed.Broadcast()
		}
	}
}

// watch ends a stream that is silent, idle or old, or on another node than the leader.
func (l *lane) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	opened, ticker := time.Now(), time.NewTicker(laneTick)
	defer ticker.Stop()
	token := l.a.client.opts.token()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			age := time.Since(opened)
			if l.a.client.opts.token() != token {
				age = math.MaxInt64 // A node ends the stream once it refuses the earlier token.
			}
			l.look(ctx, age, cancel)
		}
	}
}

func (l *lane) look(ctx context.Context, age time.Duration, cancel context.CancelCauseFunc) {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	if ctx.Err() != nil {
		return // the lane may be on its next stream
	}
	still, quiet := l.inFlight.Len() == 0, time.Since(l.moved)
	switch {
	case quiet > laneSilence+laneByte*time.Duration(l.bytes) && (!still || l.over):
		cancel(errSilent)
	case quiet > laneIdle, age > laneAge:
		l.over = true
		l.a.changed.Broadcast()
	default:
		l.a.reconsider()
	}
}
