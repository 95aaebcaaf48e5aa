package target

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
)

// subscriptionsPerConn bounds the streams of a connection: half of a node's limit.
const subscriptionsPerConn = 5000

// subscriptions are many server streams, in gRPC's wire format but without its library: two
// goroutines and buffers for each stream would use more of the machine than the measured node.
type subscriptions struct {
	conns []*streamConn
	told  func(stream int, message []byte, at time.Time) (live bool)
	// live counts the streams that are.
	live    atomic.Int64
	readers sync.WaitGroup

	mu     sync.Mutex
	failed error // the first one
	closed bool
}

// ErrNotOpen ends the opening of streams that takes too long.
var ErrNotOpen = errors.New("bench: streams not open in time")

// Subscribe opens a stream for each request, and returns once told has reported each as live; ctx
// has no effect afterwards. told gets every message with its time of arrival, from one goroutine a
// connection, and must not keep the message. fewest is the minimal number of connections.
func Subscribe(ctx context.Context, address, method string, fewest int, requests []proto.Message, told func(stream int, message []byte, at time.Time) (live bool)) (_ *subscriptions, err error) {
	s := &subscriptions{told: told}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	conns := min(max(fewest, (len(requests)+subscriptionsPerConn-1)/subscriptionsPerConn), len(requests))
	each := (len(requests) + conns - 1) / conns
	for first := 0; first < len(requests); first += each {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		c := newStreamConn(conn, s, first, min(each, len(requests)-first))
		s.conns = append(s.conns, c)
		if err := c.greet(); err != nil {
			return nil, err
		}
	}
	for _, c := range s.conns {
		s.readers.Go(c.read)
	}
	defer context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx)) })()
	var openers sync.WaitGroup
	for _, c := range s.conns {
		openers.Go(func() {
			if err := c.open(address, method, requests[c.first:c.first+len(c.rest)]); err != nil {
				s.fail(err)
			}
		})
	}
	openers.Wait()
	for int(s.live.Load()) < len(requests) && s.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return s, s.Err()
}

// fail ends all streams, unless they are closed.
func (s *subscriptions) fail(err error) {
	s.mu.Lock()
	if s.failed == nil && !s.closed {
		s.failed = err
	}
	s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.end() // the first failure is reported
	}
}

// Err returns why a stream ended before Close.
func (s *subscriptions) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Close ends the connections, and with them the streams.
func (s *subscriptions) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	var errs []error
	for _, c := range s.conns {
		errs = append(errs, c.end())
	}
	s.readers.Wait()
	return errors.Join(errs...)
}

// messages splits the bytes of a stream, and returns the rest. A gRPC message has a compression
// flag, which is unset here, its length and its content.
func messages(rest, data []byte, each func(message []byte)) ([]byte, error) {
	const head = 5
	if len(rest) > 0 {
		data = append(rest, data...)
	}
	for len(data) >= head {
		size := int(binary.BigEndian.Uint32(data[1:]))
		if data[0] != 0 {
			return nil, fmt.Errorf("bench: a message of %d bytes is compressed", size)
		}
		if len(data) < head+size {
			break
		}
		each(data[head : head+size])
		data = data[head+size:]
	}
	return append([]byte(nil), data...), nil
}

// envelope makes a message of a request.
func envelope(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 5, 128), m)
	if err == nil {
		binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
	}
	return b, err
}
