package target

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// openAtOnce is how many streams of a connection may be asked for and not live yet.
	openAtOnce = 256
	// streamWindow is large enough that flow control never blocks a stream and needs no updates.
	streamWindow = 1 << 30
	// connWindowStep is how much a connection receives before it gives its window back.
	connWindowStep = 1 << 20
	streamBuffer   = 256 << 10
)

// streamConn is a connection of subscriptions: the part of HTTP/2 (RFC 9113) that a client needs to
// send one message on each stream and then read. One goroutine reads all streams.
type streamConn struct {
	owner *subscriptions
	conn  net.Conn
	first int // the number of its first stream
	in    *http2.Framer
	rest  [][]byte // by stream: an incomplete message
	live  []bool   // by stream
	taken int      // bytes received and not given back to the window

	mu struct {
		sync.Mutex
		changed *sync.Cond
		out     *http2.Framer
		buffer  *bufio.Writer
		window  int // bytes that may be sent
		opening int // streams asked for and not live
		ended   bool
	}
}

func newStreamConn(conn net.Conn, owner *subscriptions, first, streams int) *streamConn {
	c := &streamConn{owner: owner, conn: conn, first: first, rest: make([][]byte, streams), live: make([]bool, streams)}
	c.in = http2.NewFramer(nil, bufio.NewReaderSize(conn, streamBuffer))
	c.in.SetReuseFrames()
	c.in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.mu.changed = sync.NewCond(&c.mu)
	c.mu.buffer = bufio.NewWriter(conn)
	c.mu.out = http2.NewFramer(c.mu.buffer, nil)
	c.mu.window = 65535 // the initial window (RFC 9113, section 6.9.2)
	return c
}

// end closes the connection, which ends read and open.
func (c *streamConn) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ended {
		return nil
	}
	c.mu.ended = true
	c.mu.changed.Broadcast()
	return c.conn.Close()
}

// write frames and send them.
func (c *streamConn) write(frames func(out *http2.Framer) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(frames(c.mu.out), c.mu.buffer.Flush())
}

// greet sends the connection preface.
func (c *streamConn) greet() error {
	return c.write(func(out *http2.Framer) error {
		_, err := c.mu.buffer.WriteString(http2.ClientPreface)
		return errors.Join(err,
			out.WriteSettings(http2.Setting{ID: http2.SettingEnablePush}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}),
			out.WriteWindowUpdate(0, streamWindow))
	})
}

// open a stream for each request.
func (c *streamConn) open(address, method string, requests []proto.Message) error {
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	for i, req := range requests {
		body, err := envelope(req)
		if err != nil {
			return err
		}
		block.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", address},
			{"content-type", "application/grpc"}, {"te", "trailers"}} {
			// a buffer takes everything
			_ = headers.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		if !c.awaitRoom(len(body)) {
			return nil // read reports the reason
		}
		id := uint32(2*i + 1)
		err = c.write(func(out *http2.Framer) error {
			return errors.Join(
				out.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}),
				out.WriteData(id, true, body))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitRoom for one more stream. It returns false when the connection has ended.
func (c *streamConn) awaitRoom(size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for (c.mu.window < size || c.mu.opening >= openAtOnce) && !c.mu.ended {
		c.mu.changed.Wait()
	}
	c.mu.window -= size
	c.mu.opening++
	return !c.mu.ended
}

// read until the connection ends.
func (c *streamConn) read() {
	for {
		f, err := c.in.ReadFrame()
		if err == nil {
			err = c.take(f)
		}
		if err != nil {
			c.owner.fail(err)
			return
		}
	}
}

func (c *streamConn) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(f)
	case *http2.MetaHeadersFrame:
		if f.StreamEnded() {
			return fmt.Errorf("bench: stream %d has ended: %w", f.StreamID, ended(f))
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("bench: stream %d was reset: %v", f.StreamID, f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Errorf("bench: the connection is being closed: %v %s", f.ErrCode, f.DebugData())
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.write(func(out *http2.Framer) error { return out.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.write(func(out *http2.Framer) error { return out.WritePing(true, f.Data) })
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.mu.window += int(f.Increment)
			c.mu.changed.Broadcast()
		}
	}
	return nil
}

// ended is what the last frame of a stream says, as gRPC's library would return it.
func ended(f *http2.MetaHeadersFrame) error {
	code, message := codes.Unknown, fmt.Sprint(f.RegularFields())
	for _, h := range f.RegularFields() {
		switch h.Name {
		case "grpc-status":
			if n, err := strconv.ParseUint(h.Value, 10, 32); err == nil {
				code = codes.Code(n)
			}
		case "grpc-message":
			if text, err := url.PathUnescape(h.Value); err == nil {
				message = text
			}
		}
	}
	return status.Error(code, message)
}

// data delivers the messages of a frame.
func (c *streamConn) data(f *http2.DataFrame) (err error) {
	stream, at := int(f.StreamID-1)/2, time.Now()
	if stream >= len(c.rest) {
		return fmt.Errorf("bench: stream %d was never opened", f.StreamID)
	}
	c.rest[stream], err = messages(c.rest[stream], f.Data(), func(message []byte) {
		if c.owner.told(c.first+stream, message, at) && !c.live[stream] {
			c.live[stream] = true
			c.owner.live.Add(1)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.mu.opening--
			c.mu.changed.Broadcast()
		}
	})
	if err != nil {
		return err
	}
	if c.taken += int(f.Length); c.taken < connWindowStep {
		return nil
	}
	back := uint32(c.taken)
	c.taken = 0
	return c.write(func(out *http2.Framer) error { return out.WriteWindowUpdate(0, back) })
}
