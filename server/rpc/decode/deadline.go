package decode

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

const (
	// keptTimeout is the time in which a message must arrive whose call draws from what is kept for
	// appends that have arrived. Small messages come with their headers.
	keptTimeout = time.Second
	// stuckTimeout is how long gRPC may be unable to queue one message of a stream. Watches of
	// events end before, with SLOW_CONSUMER (WATCH-3).
	stuckTimeout = 2 * readTimeout
	// sendQueue is how much gRPC queues for a stream whose reader takes nothing, in bytes.
	sendQueue = 64 << 10
)

// deadline closes the connection of a client that sends or takes nothing: gRPC has no other way to
// end a Read or a Send. It has one timer for many uses, because one for each would be an allocation
// per call.
type deadline struct {
	after time.Duration
	timer *time.Timer
	addr  net.Addr
	cut   func(net.Addr)
	armed bool
	fired bool // The timer's function may be running: the deadline must not be used again.
}

// begin starts the time of a call that has a connection.
func (d *deadline) begin(ctx context.Context, limits *Limits) {
	p, ok := peer.FromContext(ctx)
	_, connected := grpc.ServerTransportStreamFromContext(ctx).(incoming)
	if d.fired || !ok || !connected || limits.Cut == nil || p.Addr == nil {
		return
	}
	d.addr, d.cut, d.armed = p.Addr, limits.Cut, true
	if d.timer == nil {
		d.timer = time.AfterFunc(d.after, func() { d.cut(d.addr) })
	} else {
		d.timer.Reset(d.after)
	}
}

// end stops the time.
func (d *deadline) end() {
	if d.armed {
		d.armed, d.fired = false, !d.timer.Stop()
	}
}
