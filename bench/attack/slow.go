package main

import (
	"context"
	"io"
	"net"
	"time"
)

// drip is the time between two bytes of a slow client.
const drip = 2 * time.Second

// trickle sends a byte now and then until the node closes the connection.
func trickle(ctx context.Context, conn net.Conn) {
	for ctx.Err() == nil {
		if _, err := conn.Write([]byte("a")); err != nil {
			return
		}
		select {
		case <-time.After(drip):
		case <-ctx.Done():
		}
	}
}

func slowHeads(ctx context.Context, n *node, got *answers) {
	connect(ctx, n.addresses.HTTP, 1000, got, func(conn net.Conn) {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nX-Slow: "); err == nil {
			trickle(ctx, conn)
		}
	})
}

func slowBodies(ctx context.Context, n *node, got *answers) {
	connect(ctx, n.addresses.HTTP, 1000, got, func(conn net.Conn) {
		head(conn, "POST /v1/runs/slow/events:append", "Content-Type: application/json", "Content-Length: 1000000")
		trickle(ctx, conn)
	})
}

// slowReaders take a byte of their answer now and then.
func slowReaders(ctx context.Context, n *node, got *answers) {
	connect(ctx, n.addresses.HTTP, 1000, got, func(conn net.Conn) {
		head(conn, "GET /v1/runs/read/events")
		for ctx.Err() == nil {
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				return
			}
			select {
			case <-time.After(drip):
			case <-ctx.Done():
			}
		}
	})
}
