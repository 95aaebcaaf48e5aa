package servertest

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/storage"
)

// Watcher reads a watch in the background and checks on the way that its watermarks never go back.
type Watcher struct {
	t        testing.TB
	Cancel   context.CancelFunc
	Messages chan *runlogv1.WatchRunResponse // closed at the end of the stream
	err      error                           // of the end; read it after Messages is closed
}

// Watch begins a watch of a run.
func (n *Node) Watch(req *runlogv1.WatchRunRequest) *Watcher {
	n.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.T.Cleanup(cancel)
	stream, err := n.Projection.WatchRun(ctx, req)
	if err != nil {
		n.T.Fatal(err)
	}
	w := &Watcher{t: n.T, Cancel: cancel, Messages: make(chan *runlogv1.WatchRunResponse, 10_000)}
	go w.read(stream)
	return w
}

func (w *Watcher) read(stream grpc.ServerStreamingClient[runlogv1.WatchRunResponse]) {
	defer close(w.Messages)
	var last, highest uint64
	drains := false // as the last message said
	caughtUp := 0
	for {
		m, err := stream.Recv()
		if err != nil {
			w.err = err
			return
		}
		mark := watermarkOf(m)
		if mark == nil { // a snapshot, or events
			w.Messages <- m
			continue
		}
		if mark.LastEventSeq < highest {
			w.t.Errorf("%T at %d after one at %d (WATCH-3)", m.Kind, mark.LastEventSeq, highest)
		}
		highest = mark.LastEventSeq
		switch m.Kind.(type) {
		case *runlogv1.WatchRunResponse_Watermark:
			drained := drains && mark.Substatus == nil // The drain timeout of its pause has ended.
			if mark.LastEventSeq < last || mark.LastEventSeq == last && !mark.Stale && !drained {
				w.t.Errorf("watermark %d after %d (WATCH-3)", mark.LastEventSeq, last)
			}
			last = mark.LastEventSeq
		case *runlogv1.WatchRunResponse_CaughtUp:
			if caughtUp++; caughtUp > 1 {
				w.t.Errorf("caughtUp for the %d. time", caughtUp)
			}
		}
		drains = mark.Substatus != nil
		if m.ResumeToken == "" {
			w.t.Errorf("%T without a resume token", m.Kind)
		}
		w.Messages <- m
	}
}

func watermarkOf(m *runlogv1.WatchRunResponse) *runlogv1.Watermark {
	switch k := m.Kind.(type) {
	case *runlogv1.WatchRunResponse_Watermark:
		return k.Watermark
	case *runlogv1.WatchRunResponse_CaughtUp:
		return k.CaughtUp.Watermark
	default:
		return m.GetHeartbeat().GetWatermark()
	}
}

// Until returns the first message that fits.
func (w *Watcher) Until(what string, fits func(*runlogv1.WatchRunResponse) bool) *runlogv1.WatchRunResponse {
	w.t.Helper()
	deadline := time.After(Patience)
	for {
		select {
		case m, open := <-w.Messages:
			if !open {
				w.t.Fatalf("the watch ended before %s: %v", what, w.err)
			}
			if fits(m) {
				return m
			}
		case <-deadline:
			w.t.Fatalf("still not there after %v: %s", Patience, what)
		}
	}
}

// Over waits for the end of the stream and returns its error.
func (w *Watcher) Over() error {
	w.t.Helper()
	deadline := time.After(Patience)
	for {
		select {
		case _, open := <-w.Messages:
			if !open {
				return w.err
			}
		case <-deadline:
			w.t.Fatal("the watch does not end")
		}
	}
}

// IsCaughtUp reports whether a message says that the watch has caught up.
func IsCaughtUp(m *runlogv1.WatchRunResponse) bool { return m.GetCaughtUp() != nil }

// Reaches fits a watermark with this runSeq.
func Reaches(seq uint64) func(*runlogv1.WatchRunResponse) bool {
	return func(m *runlogv1.WatchRunResponse) bool { return m.GetWatermark().GetLastEventSeq() == seq }
}

// Incarnation of the cluster, as the node has it.
func (n *Node) Incarnation() storage.Incarnation {
	return n.Server.Internals().Replica.Store().Incarnation()
}

// Position is the token of a position.
func (n *Node) Position(p storage.Position) string { return rpc.FormatPosition(n.Incarnation(), p) }

// WatchToken is that of a watch of a run that has got everything up to a runSeq.
func (n *Node) WatchToken(runID string, seq uint64) string {
	return WatchToken(n.Incarnation(), runID, binary.AppendUvarint(nil, seq))
}

// WatchToken makes a token of a watch of a run, or of something that is none.
func WatchToken(in storage.Incarnation, runID string, body []byte) string {
	domain := rpc.NewTokenDomain("watch of a run", in, runID)
	return domain.Seal(rpc.TokenWatch, body)
}
