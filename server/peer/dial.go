package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Dial connects to a node and runs the handshake, within 5 s and the context. wantRaftID must
// answer; empty: any node may. Errors: *RefusedError if either end refused the other, net.ErrClosed
// after Close, else wrapped network errors. The connection is a *Conn; the caller owns it, and it
// outlives Close.
func (m *Mesh) Dial(ctx context.Context, kind Kind, address, wantRaftID string) (net.Conn, error) {
	if !m.begin() {
		return nil, fmt.Errorf("peer: dialling %s: %w", address, net.ErrClosed)
	}
	defer m.running.Done()
	bounded, cancel := m.withDeadline(ctx)
	defer cancel()
	c, node, err := m.dial(bounded, kind, address, wantRaftID)
	if err == nil {
		m.metrics.done(dialling, "")
		return c, nil
	}
	if m.closing.Err() != nil {
		return nil, fmt.Errorf("peer: dialling %s: %w", address, net.ErrClosed)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("peer: dialling %s: %w", address, ctx.Err())
	}
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok {
		m.metrics.done(dialling, broken)
		return nil, fmt.Errorf("peer: dialling %s: %w", address, err)
	}
	refused.Address = address
	m.metrics.done(dialling, refused.Reason)
	if !refused.Remote {
		m.logRefusal(refused, address, node)
	}
	return nil, refused
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		tune(conn)
	}
	return conn, err
}

// dial returns the name of the answering node also with an error, if known.
func (m *Mesh) dial(ctx context.Context, kind Kind, address, want string) (_ *Conn, node string, err error) {
	raw, err := m.opts.Dial(ctx, address)
	if err != nil {
		return nil, "", err
	}
	// A deadline in the past ends reads and writes when the context ends.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	c, node, err := m.introduce(ctx, raw, kind, want)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		return nil, node, m.broke(err)
	}
	return c, node, nil
}

// broke returns the error for a broken handshake.
func (m *Mesh) broke(err error) error {
	if _, ok := errors.AsType[*RefusedError](err); ok || errors.Is(err, errIdentity) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		// A hanging node and another program that waits for input look the same.
		return fmt.Errorf("no handshake within %v; the node hangs, is overloaded, or is not a runlog node: %w",
			m.opts.handshakeTimeout, os.ErrDeadlineExceeded)
	}
	if refused := m.misread(err); refused != nil {
		return refused
	}
	return fmt.Errorf("the handshake broke off; the node shuts down, is overloaded, or is not a runlog node: %w", err)
}

// introduce is the dialling end's half of the handshake.
func (m *Mesh) introduce(ctx context.Context, raw net.Conn, kind Kind, want string) (_ *Conn, node string, err error) {
	conn, certified, err := m.introduceTLS(ctx, raw, kind)
	if err != nil {
		return nil, "", err
	}
	self := m.opts.Self()
	out, err := message{Type: hello, Kind: kind, Identity: self, Want: want}.encode()
	if err != nil {
		return nil, "", err
	}
	// If the other end refused this certificate, it may have closed already, and a write may fail.
	// Its refusal can still be read.
	_, writeErr := conn.Write(out)
	in, err := readMessage(conn)
	if err != nil {
		return nil, "", errors.Join(err, writeErr)
	}
	if in.Type != welcome || in.Kind != kind {
		return nil, "", outOfTurn(in, raw)
	}
	node = in.Identity.NodeID
	if refused := m.judge(kind, self, in.Identity, certified, want, in.Identity.RaftID); refused != nil {
		m.tell(conn, kind, refused)
		return nil, node, refused
	}
	out, err = message{Type: proceed, Kind: kind}.encode()
	if err != nil {
		return nil, node, err
	}
	if _, err := conn.Write(out); err != nil {
		return nil, node, err
	}
	return &Conn{Conn: conn, kind: kind, other: in.Identity}, node, nil
}

// introduceTLS returns the connection to continue with and the name in the other end's certificate,
// after checking it.
func (m *Mesh) introduceTLS(ctx context.Context, raw net.Conn, kind Kind) (net.Conn, *string, error) {
	if m.opts.TLS == nil {
		return raw, nil, nil
	}
	own := m.material()
	conn := tls.Client(raw, own.config())
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, nil, &tlsError{err}
	}
	name, refused := own.nameOf(conn.ConnectionState(), serverRole)
	if refused != nil {
		m.tell(conn, kind, refused)
		return nil, nil, refused
	}
	return conn, &name, nil
}

// tell sends a refusal. All bytes of the other end are read, so closing right after loses nothing.
func (*Mesh) tell(conn net.Conn, kind Kind, e *RefusedError) {
	if out, err := (message{Type: refusal, Kind: kind, Reason: e.Reason, Text: e.Message}).encode(); err == nil {
		_, _ = conn.Write(out)
	}
}
