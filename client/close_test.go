package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	runlogv1 "runlog/proto/runlog/v1"
)

// stuck are connections that take no more bytes once they are told to, as those to a host that
// hangs.
type stuck struct {
	credentials.TransportCredentials
	now *atomic.Bool
}

func (s stuck) ClientHandshake(ctx context.Context, to string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ClientHandshake(ctx, to, raw)
	return &stuckConn{Conn: conn, now: s.now, closed: make(chan struct{})}, info, err
}

func (s stuck) Clone() credentials.TransportCredentials { return s }

type stuckConn struct {
	net.Conn
	now    *atomic.Bool
	closed chan struct{}
	first  atomic.Bool
}

func (c *stuckConn) Write(p []byte) (int, error) {
	if c.now.Load() {
		<-c.closed
	}
	return c.Conn.Write(p)
}

func (c *stuckConn) Close() error {
	if c.first.CompareAndSwap(false, true) {
		close(c.closed)
	}
	return c.Conn.Close()
}

// TestCloseHoldsUpNoCall: gRPC waits for a connection that takes no more bytes when it closes it.
// Calls are refused meanwhile. In this bubble, one that waited for a mutex would wait forever.
func TestCloseHoldsUpNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &calls{}
		now := &atomic.Bool{}
		c := dialFake(t, all.fake("fake", nil), Options{
			DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(stuck{insecure.NewCredentials(), now})},
		})
		mustAppend(t, c)
		now.Store(true)
		began, closed := time.Now(), make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("Close does not wait for the connection; the test shows nothing")
		default:
		}
		if _, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{}); !errors.Is(err, ErrClosed) || time.Since(began) > 0 {
			t.Errorf("a call on a client that closes: %v after %v, want ErrClosed at once", err, time.Since(began))
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}
