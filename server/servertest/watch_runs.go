package servertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
)

// RunsWatcher reads a watch of many runs in the background.
type RunsWatcher struct {
	t        testing.TB
	Cancel   context.CancelFunc
	Messages chan *runlogv1.WatchRunsResponse // closed at the end of the stream
	err      error                            // of the end; read it after Messages is closed
}

// WatchRuns begins a watch of many runs.
func (n *Node) WatchRuns(req *runlogv1.WatchRunsRequest) *RunsWatcher {
	n.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.T.Cleanup(cancel)
	stream, err := n.Projection.WatchRuns(ctx, req)
	if err != nil {
		n.T.Fatal(err)
	}
	w := &RunsWatcher{t: n.T, Cancel: cancel, Messages: make(chan *runlogv1.WatchRunsResponse, 10_000)}
	go w.read(stream)
	return w
}

func (w *RunsWatcher) read(stream grpc.ServerStreamingClient[runlogv1.WatchRunsResponse]) {
	defer close(w.Messages)
	for {
		m, err := stream.Recv()
		if err != nil {
			w.err = err
			return
		}
		w.Messages <- m
	}
}

// Next returns the next message, as text: run@lastEventSeq status for a watermark.
func (w *RunsWatcher) Next() (string, *runlogv1.WatchRunsResponse) {
	w.t.Helper()
	select {
	case m, open := <-w.Messages:
		if !open {
			w.t.Fatalf("the watch ended: %v", w.err)
		}
		if m.ResumeToken == "" {
			w.t.Errorf("%v without a resume token", m)
		}
		switch {
		case m.GetCaughtUp() != nil:
			return "caughtUp", m
		case m.GetHeartbeat() != nil:
			return "heartbeat", m
		}
		return fmt.Sprintf("%s@%d %v", m.GetWatermark().RunId, m.GetWatermark().LastEventSeq, m.GetWatermark().Status), m
	case <-time.After(Patience):
		w.t.Fatal("no message")
		panic("unreachable")
	}
}

// Want reads messages and compares them; it returns the last one.
func (w *RunsWatcher) Want(texts ...string) *runlogv1.WatchRunsResponse {
	w.t.Helper()
	var last *runlogv1.WatchRunsResponse
	for _, text := range texts {
		got, m := w.Next()
		WantEqual(w.t, "message", got, text)
		last = m
	}
	return last
}

// Over waits for the end of the stream and returns its error.
func (w *RunsWatcher) Over() error {
	w.t.Helper()
	for {
		select {
		case _, open := <-w.Messages:
			if !open {
				return w.err
			}
		case <-time.After(Patience):
			w.t.Fatal("the watch does not end")
		}
	}
}
