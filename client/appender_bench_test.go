package client

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// BenchmarkAppender measures what an Appender adds to protobuf and gRPC: the way of a call from its
// goroutine to a lane and back. The answer is made beforehand.
func BenchmarkAppender(b *testing.B) {
	c, err := Dial("passthrough:///nobody", Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	a := newAppender(c, AppenderOptions{}.EnsureDefaults())
	defer a.Close()
	const callers = 256
	answers := make([]*runlogv1.AppendStreamResponse, callers+1)
	for n := range answers {
		answers[n] = &runlogv1.AppendStreamResponse{Results: make([]*runlogv1.AppendResult, n)}
		for i := range n {
			answers[n].Results[i] = &runlogv1.AppendResult{EventId: "e"}
		}
	}
	// This lane has no stream.
	l := &lane{a: a, answers: 1}
	go func() {
		for message := l.next(); message != nil; message = l.next() {
			a.mu.Lock()
			n := l.inFlight.First().events
			a.mu.Unlock()
			if _, err := l.answer(nil, answers[n]); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			run := string(rune('a' + i))
			event := &runlogv1.EventWrite{EventId: "e", RunId: run, EventType: "StepStarted", PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, 400)}}
			req := &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{event}}
			for n := i; n < b.N; n += callers {
				if _, err := a.AppendRequest(context.Background(), req); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkEncode is the part of BenchmarkAppender that is protobuf's.
func BenchmarkEncode(b *testing.B) {
	event := &runlogv1.EventWrite{EventId: "e", RunId: "a", EventType: "StepStarted", PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, 400)}}
	req := &runlogv1.AppendEventsRequest{RunId: "a", Events: []*runlogv1.EventWrite{event}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := proto.Marshal(req); err != nil {
			b.Fatal(err)
		}
	}
}
