package main

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"runlog/bench/report"
	"runlog/bench/target"
)

// TestReceivers: each inbox of NATS and Kafka counts what it has stored, and no process is left.
func TestReceivers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	node := runlogNode{dir: t.TempDir()}
	for _, name := range []string{report.SinkNATS, report.SinkKafka} {
		r, err := node.OpenReceiver(ctx, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		a, err1 := r.Open(ctx)
		b, err2 := r.Open(ctx)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pid := store(ctx, t, r, a, 5)
		one, err1 := a.Received(ctx)
		other, err2 := b.Received(ctx)
		if err := errors.Join(err1, err2); err != nil || one != 5 || other != 0 {
			t.Errorf("%s: %d and %d events, %v", name, one, other, err)
		}
		if err := errors.Join(a.Close(), b.Close(), r.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s: process %d is still there: %v", name, pid, err)
		}
	}
	if _, err := node.OpenReceiver(ctx, report.Consume); err == nil {
		t.Error("consume has a receiver")
	}
}

// store puts messages into an inbox, and returns the id of the server's process.
func store(ctx context.Context, t *testing.T, r target.Receiver, in target.Inbox, messages int) int {
	t.Helper()
	for range messages {
		var err error
		switch x := r.(type) {
		case *natsReceiver:
			_, err = x.js.Publish(ctx, in.(*natsInbox).name+".run", []byte("{}"))
		case *kafkaReceiver:
			err = x.client.ProduceSync(ctx, &kgo.Record{Topic: in.Delivery().GetKafka().Topic, Value: []byte("{}")}).FirstErr()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if x, ok := r.(*natsReceiver); ok {
		return x.process.ID()
	}
	return r.(*kafkaReceiver).process.ID()
}
