package client

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
)

// refuser speaks just enough HTTP/2: once told, it says that it has processed no stream, and takes
// no more.
func refuser(conn net.Conn, opened chan<- struct{}, refuse <-chan struct{}) {
	const settings, headers, goAway = 4, 1, 7
	frame := func(kind, flags byte, payload ...byte) {
		head := []byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, 0}
		_, _ = conn.Write(append(head, payload...))
	}
	if _, err := io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	go frame(settings, 0)
	for {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(append([]byte{0}, head[:3]...)))); err != nil {
			return
		}
		switch {
		case head[3] == settings && head[4] == 0:
			go frame(settings, 1)
		case head[3] == headers:
			close(opened)
			go func() {
				<-refuse
				frame(goAway, 0, make([]byte, 8)...)
			}()
		}
	}
}

// TestSendWaitsForNoConnection: a stream that a node has not processed is opened again once there
// is a connection. Nothing waits for a mutex until then: in this bubble, it would wait forever.
func TestSendWaitsForNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, refuse := make(chan struct{}), make(chan struct{})
		var dials atomic.Int32
		fake := &fakeServer{appendStream: func(stream appendServer) error {
			for {
				req, err := stream.Recv()
				if err != nil {
					return nil
				}
				resp := &runlogv1.AppendStreamResponse{}
				for range req.GetEvents() {
					resp.Results = append(resp.Results, &runlogv1.AppendResult{})
				}
				if err := stream.Send(resp); err != nil {
					return err
				}
			}
		}}
		listener := listen(t, fake)
		c, err := Dial("passthrough:///fake", Options{DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				if dials.Add(1) == 1 {
					ours, theirs := net.Pipe()
					go refuser(theirs, opened, refuse)
					return ours, nil
				}
				time.Sleep(time.Second)
				return listener.DialContext(ctx)
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a, err := c.NewAppender(AppenderOptions{Streams: 1})
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 2)
		send := func(run string) {
			_, err := a.Append(t.Context(), &runlogv1.EventWrite{RunId: run, EventType: "Noted"})
			results <- err
		}
		go send("a")
		<-opened
		synctest.Wait()
		close(refuse)
		time.Sleep(time.Millisecond)
		go send("b")
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}
