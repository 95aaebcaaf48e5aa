package streams

import (
	"errors"
	"net"
	"testing"
	"time"

	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// TestClosedStreams: a closed transport closes every connection, also one that blocks on a node
// that does not read, and makes no further one. It forgets connections closed before.
func TestClosedStreams(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, err := network.New(1).Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var far []net.Conn
		s := New(l, "elsewhere:1", func(string, time.Duration) (net.Conn, error) {
			near, other := net.Pipe() // no reader
			far = append(far, other)
			return near, nil
		})
		if got := s.Addr().String(); got != "elsewhere:1" {
			t.Errorf("others are told %s", got)
		}
		done, err := s.Dial("x", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		stalled, err := s.Dial("x", time.Second)
		if err := errors.Join(err, done.Close()); err != nil {
			t.Fatal(err)
		}
		if len(s.open) != 1 {
			t.Errorf("%d connections are open, want 1", len(s.open))
		}
		failed := make(chan error)
		go func() {
			_, err := stalled.Write(make([]byte, 1<<20))
			failed <- err
		}()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; err == nil {
			t.Error("a write to a node that takes nothing succeeded")
		}
		if _, err := s.Dial("x", time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed transport connects: %v", err)
		}
		for _, c := range far {
			_ = c.Close()
		}
	})
}
