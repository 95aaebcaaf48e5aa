package network

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipe is one direction of a connection: a queue of pieces, each with its time of arrival.
type pipe struct {
	net  *Network
	link Link
	back *pipe // the other direction of the connection

	mu       sync.Mutex
	pieces   []piece
	bytes    int           // in pieces
	arriving time.Time     // when the last piece arrives; pieces do not overtake each other
	finished error         // that the reader gets after the last piece; nil: more may come
	closed   bool          // the reader is gone
	moved    chan struct{} // closed when any of this changes
	readBy   time.Time     // deadlines; zero: none
	writeBy  time.Time
}

type piece struct {
	data []byte
	at   time.Time
}

func (n *Network) newPipe(l Link) *pipe { return &pipe{net: n, link: l, moved: make(chan struct{})} }

// wake wakes all waiting readers and writers; p.mu is held.
func (p *pipe) wake() {
	close(p.moved)
	p.moved = make(chan struct{})
}

func (p *pipe) setReadDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readBy = t
	p.wake()
}

func (p *pipe) setWriteDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writeBy = t
	p.wake()
}

// end gives the reader an error, after the pieces on their way or at once.
func (p *pipe) end(err error, atOnce bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished == nil {
		p.finished = err
	}
	if atOnce {
		p.finished, p.pieces, p.bytes = err, nil, 0
	}
	p.wake()
}

// shut closes the reading end. Later writes are reset.
func (p *pipe) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.pieces, p.bytes = true, nil, 0
	p.wake()
}

// write queues a piece.
func (p *pipe) write(data []byte) (int, error) {
	for {
		p.mu.Lock()
		switch {
		case errors.Is(p.finished, syscall.ECONNRESET):
			p.mu.Unlock()
			return 0, p.error("write", syscall.ECONNRESET)
		case p.closed:
			p.mu.Unlock()
			return p.refuse(len(data))
		case p.finished != nil:
			p.mu.Unlock()
			return 0, p.error("write", net.ErrClosed)
		case expired(p.writeBy):
			p.mu.Unlock()
			return 0, p.error("write", os.ErrDeadlineExceeded)
		case p.bytes < windowBytes:
			p.send(data)
			p.mu.Unlock()
			return len(data), nil
		}
		moved, by := p.moved, p.writeBy
		p.mu.Unlock()
		wait(moved, nil, by, time.Time{})
	}
}

// Refuse handles a write of n bytes to a closed reader. The reset comes back and ends the writer's
// reading direction too: if only its writes failed, gRPC would retry at once, without end. While
// the way back is cut, the write succeeds.
func (p *pipe) refuse(n int) (int, error) {
	if cut, _ := p.net.isCut(p.back.link); cut {
		return n, nil
	}
	p.back.end(syscall.ECONNRESET, true)
	return 0, p.error("write", syscall.ECONNRESET)
}

// send queues a piece for which there is room; p.mu is held.
func (p *pipe) send(data []byte) {
	p.net.mu.Lock()
	at := time.Now().Add(p.net.latency(p.link))
	p.net.mu.Unlock()
	if at.Before(p.arriving) {
		at = p.arriving
	}
	p.arriving = at
	p.pieces = append(p.pieces, piece{append([]byte(nil), data...), at})
	p.bytes += len(data)
	p.wake()
}

// read waits for bytes that have arrived.
func (p *pipe) read(to []byte) (int, error) {
	for {
		cut, opened := p.net.isCut(p.link)
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return 0, p.error("read", net.ErrClosed)
		}
		if len(p.pieces) == 0 && p.finished != nil && (!cut || errors.Is(p.finished, syscall.ECONNRESET)) {
			err := p.finished
			p.mu.Unlock()
			return 0, p.error("read", err)
		}
		if expired(p.readBy) {
			p.mu.Unlock()
			return 0, p.error("read", os.ErrDeadlineExceeded)
		}
		var arrives time.Time
		if len(p.pieces) > 0 {
			arrives = p.pieces[0].at
			if !cut && !time.Now().Before(arrives) {
				n := p.take(to)
				p.mu.Unlock()
				return n, nil
			}
		}
		moved, by := p.moved, p.readBy
		p.mu.Unlock()
		if cut {
			wait(moved, opened, by, time.Time{})
		} else {
			wait(moved, nil, by, arrives)
		}
	}
}

// take copies bytes that have arrived to a buffer; p.mu is held.
func (p *pipe) take(to []byte) int {
	n, now := 0, time.Now()
	for n < len(to) && len(p.pieces) > 0 && !now.Before(p.pieces[0].at) {
		k := copy(to[n:], p.pieces[0].data)
		n += k
		p.pieces[0].data = p.pieces[0].data[k:]
		if len(p.pieces[0].data) == 0 {
			p.pieces = p.pieces[1:]
		}
	}
	was := p.bytes
	p.bytes -= n
	if was >= windowBytes {
		p.wake()
	}
	return n
}

func (p *pipe) error(op string, err error) error {
	if errors.Is(err, io.EOF) {
		return err // io.EOF stays unwrapped
	}
	return &net.OpError{Op: op, Net: "tcp", Source: address(p.link.From), Addr: address(p.link.To), Err: err}
}

func expired(by time.Time) bool { return !by.IsZero() && !time.Now().Before(by) }

// wait returns when one of two channels is closed, or at the first of the times. A zero time never
// comes.
func wait(a, b <-chan struct{}, times ...time.Time) {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	var due <-chan time.Time
	if !first.IsZero() {
		timer := time.NewTimer(time.Until(first))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-a:
	case <-b:
	case <-due:
	}
}
