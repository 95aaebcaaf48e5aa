package consumer

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestBatchesBUS8: outcomes share messages, of at most sendIDs ids and one delay each, in their
// order. A credit goes along with its outcome, and never ahead of it.
func TestBatchesBUS8(t *testing.T) {
	t.Parallel()
	x := &consuming{opts: &Options{}, toSend: make(chan struct{}, 1)}
	for i := range 2*sendIDs + 1 {
		x.settle(outcome{id: fmt.Sprint(i), ack: true})
	}
	x.settle(outcome{}) // dropped
	for _, delay := range []time.Duration{-1, -1, 0, time.Second} {
		x.settle(outcome{id: "n", delay: delay})
	}
	for i, want := range []struct {
		ids     int
		credits uint32
		first   string
		delay   string
	}{
		{sendIDs, sendIDs + 1, "0", ""}, {sendIDs, sendIDs, fmt.Sprint(sendIDs), ""}, {1, 1, fmt.Sprint(2 * sendIDs), ""},
		{2, 2, "n", "none"}, {1, 1, "n", "0s"}, {1, 1, "n", "1s"},
	} {
		req := x.message()
		ids, delay := req.GetAck().GetDeliveryIds(), ""
		if nack := req.GetNack(); nack != nil {
			ids, delay = nack.DeliveryIds, "none"
			if nack.Delay != nil {
				delay = nack.Delay.AsDuration().String()
			}
		}
		if len(ids) != want.ids || req.Credits != want.credits || ids[0] != want.first || delay != want.delay {
			t.Errorf("message %d: %d ids from %s, %d credits, delay %q, want %+v", i, len(ids), ids[0], req.Credits, delay, want)
		}
	}
	if req := x.message(); req != nil {
		t.Errorf("one more message: %v", req)
	}
}

// TestMaxCredits: a consumer of at most Max deliveries takes no others, also over several streams.
func TestMaxCredits(t *testing.T) {
	t.Parallel()
	x := &consuming{opts: &Options{Credits: 4, Max: 6}, toSend: make(chan struct{}, 1)}
	x.mu.credits = 4
	if n := x.grantLocked(); n != 4 {
		t.Errorf("%d credits at first", n)
	}
	x.mu.taken = 3
	for range 3 {
		x.settle(outcome{})
	}
	if n := x.message().GetCredits(); n != 2 {
		t.Errorf("%d more credits, want 2", n)
	}
	x.settle(outcome{})
	if req := x.message(); req != nil {
		t.Errorf("a message beyond Max: %v", req)
	}
	// The next stream gets those that the one before has not used.
	x.mu.credits, x.mu.granted = 4, x.mu.taken
	if n := x.grantLocked(); n != 3 {
		t.Errorf("%d credits on the next stream, want 3", n)
	}
}

// TestRepeatInHand: an event that comes again while the function still has it is not handled a
// second time, and its credit is free.
func TestRepeatInHand(t *testing.T) {
	t.Parallel()
	x := &consuming{toSend: make(chan struct{}, 1)}
	handled, release := make(chan string, 3), make(chan struct{})
	h := &handling{ctx: t.Context(), slots: make(chan struct{}, 1), runs: map[string][]*Delivery{}, f: func(_ context.Context, d *Delivery) error {
		<-release
		handled <- d.ID
		return nil
	}}
	for _, id := range []string{"1", "1", "2", "2"} {
		h.add(&Delivery{EventRecord: &runlogv1.EventRecord{RunId: "run"}, ID: id, of: x})
	}
	if x.mu.credits != 2 {
		t.Errorf("%d credits are free, want those of 2 repeats", x.mu.credits)
	}
	close(release)
	h.lines.Wait()
	if close(handled); len(handled) != 2 || <-handled != "1" || <-handled != "2" {
		t.Errorf("handled %d deliveries, not 1 and 2", len(handled))
	}
	if x.mu.outcomes.Len() != 2 || len(h.runs) != 0 {
		t.Errorf("%d outcomes, %d runs", x.mu.outcomes.Len(), len(h.runs))
	}
}

// TestFunctionEndsGoroutine: a function that ends its goroutine (runtime.Goexit, as the FailNow of
// a test does) has refused the event. It keeps neither a slot nor its run.
func TestFunctionEndsGoroutine(t *testing.T) {
	t.Parallel()
	x := &consuming{opts: &Options{}, toSend: make(chan struct{}, 1)}
	handled := make(chan string, 4)
	h := &handling{ctx: t.Context(), slots: make(chan struct{}, 1), runs: map[string][]*Delivery{}, f: func(_ context.Context, d *Delivery) error {
		handled <- d.ID
		if d.ID != "3" {
			runtime.Goexit()
		}
		return nil
	}}
	add := func(run, id string) {
		h.add(&Delivery{EventRecord: &runlogv1.EventRecord{RunId: run}, ID: id, of: x})
	}
	h.slots <- struct{}{} // All deliveries are in line before the first is handled.
	add("a", "1")
	add("a", "2")
	add("a", "3")
	add("b", "4")
	<-h.slots
	h.lines.Wait()
	if len(handled) != 4 || len(h.slots) != 0 || len(h.runs) != 0 {
		t.Errorf("%d deliveries are handled, %d slots and %d runs in use", len(handled), len(h.slots), len(h.runs))
	}
	acks, nacks := 0, 0
	for req := x.message(); req != nil; req = x.message() {
		acks, nacks = acks+len(req.GetAck().GetDeliveryIds()), nacks+len(req.GetNack().GetDeliveryIds())
	}
	if acks != 1 || nacks != 3 {
		t.Errorf("%d deliveries are acknowledged and %d refused, want 1 and 3", acks, nacks)
	}
}
