package client

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
)

// TestAppenderLeavesARefusingNode: a node that refuses a stream and then accepts no connection is
// left at once. If gRPC tried the stream again by itself, it would wait for the connection, and
// hold a mutex that senders need.
func TestAppenderLeavesARefusingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := &recorder{}
		others := dialerNamed(t, map[string]*fakeServer{"b": {appendStream: well.serve}})
		var dials atomic.Int32
		dialer := grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
			if name != "a" {
				return others(ctx, name)
			}
			if dials.Add(1) > 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			ours, theirs := net.Pipe()
			go refuseStream(theirs)
			return ours, nil
		})
		c, err := Dial(targetOf("a,b"), Options{DialOptions: []grpc.DialOption{dialer}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a, _ := c.NewAppender(AppenderOptions{Streams: 1})
		began := time.Now()
		if _, err := a.Append(t.Context(), event("r")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second || dials.Load() == 0 || len(well.messages()) != 1 {
			t.Errorf("it took %v: %d connections to the node that refuses, %d messages to the other", took, dials.Load(), len(well.messages()))
		}
	})
}

// refuseStream speaks HTTP/2: it takes the first stream, and then says that it has not seen it.
func refuseStream(conn net.Conn) {
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		_ = framer.WriteSettings()
	}()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if frame.Header().Type == http2.FrameHeaders {
			<-greeted
			_ = framer.WriteGoAway(0, http2.ErrCodeNo, nil)
			return
		}
	}
}
