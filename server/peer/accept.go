package peer

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"
)

// acceptLoop accepts connections until the listener closes. It never waits for a handshake: at the
// limit it ends the oldest one, which is the slowest.
func (m *Mesh) acceptLoop() {
	var pause time.Duration
	for {
		conn, err := m.opts.Listener.Accept()
		if err != nil {
			if m.closing.Err() != nil {
				return
			}
			// Out of file descriptors or similar: the condition passes, or Close is called.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			m.log.every(time.Minute, "accept", slog.LevelError, "cannot take connections of other nodes", "error", err)
			select {
			case <-time.After(pause):
			case <-m.closing.Done():
			}
			continue
		}
		pause = 0
		m.admitPending(conn)
	}
}

// admitPending starts a handshake.
func (m *Mesh) admitPending(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		_ = conn.Close()
		return
	}
	if m.mu.pending.Len() >= maxHandshakes {
		oldest := m.mu.pending.Front()
		_ = m.mu.pending.Remove(oldest).(net.Conn).Close()
		m.log.every(time.Minute, "crowd", slog.LevelWarn, "too many handshakes under way; ending the oldest",
			"limit", maxHandshakes)
	}
	e := m.mu.pending.PushBack(conn)
	m.running.Go(func() { m.take(conn, e) })
}

// take runs the handshake of an accepted connection and queues the connection, or closes it.
func (m *Mesh) take(raw net.Conn, e *list.Element) {
	c, err := m.answer(raw)
	m.mu.Lock()
	m.mu.pending.Remove(e) // no-op if it was ended as the oldest
	m.mu.Unlock()
	switch {
	case err != nil:
		_ = raw.Close()
	default:
		l := m.listenerOf(c.kind)
		if l == nil || !l.deliver(c) {
			m.log.every(time.Minute, "backlog "+c.kind.String(), slog.LevelWarn,
				"connection of another node ended; no listener takes it", "kind", c.kind.String(), "node", c.other.NodeID)
			_ = c.Close()
		}
	}
}

// answer is the accepting end's half of the handshake. It logs and sends its refusals.
func (m *Mesh) answer(raw net.Conn) (*Conn, error) {
	tune(raw)
	if err := raw.SetDeadline(time.Now().Add(m.opts.handshakeTimeout)); err != nil {
		return nil, err
	}
	conn, certified, err := m.answerTLS(raw)
	if err != nil {
		return nil, m.turnAway(raw, conn, message{}, err)
	}
	in, err := readMessage(conn)
	if err != nil {
		return nil, m.turnAway(raw, conn, in, err)
	}
	self := m.opts.Self()
	if err := m.judgeHello(self, in, certified); err != nil {
		return nil, m.turnAway(raw, conn, in, err)
	}
	out, err := message{Type: welcome, Kind: in.Kind, Identity: self}.encode()
	if err != nil {
		return nil, m.turnAway(raw, conn, in, err)
	}
	if _, err := conn.Write(out); err != nil {
		return nil, m.turnAway(raw, conn, in, err)
	}
	last, err := readMessage(conn)
	if err == nil && (last.Type != proceed || last.Kind != in.Kind) {
		err = outOfTurn(last, raw)
	}
	if err != nil {
		return nil, m.turnAway(raw, conn, in, err)
	}
	m.metrics.done(accepting, "")
	return &Conn{Conn: conn, kind: in.Kind, other: in.Identity}, raw.SetDeadline(time.Time{})
}

// answerTLS returns the connection to continue with and the name in the other end's certificate.
// With an error it returns a connection too, if a refusal can be sent on it.
func (m *Mesh) answerTLS(raw net.Conn) (net.Conn, *string, error) {
	if m.opts.TLS == nil {
		return raw, nil, nil
	}
	own := m.material()
	conn := tls.Server(raw, own.config())
	if err := conn.HandshakeContext(m.closing); err != nil {
		if e, ok := errors.AsType[tls.RecordHeaderError](err); ok && e.Conn != nil {
			// The other end does not speak TLS, and nothing of TLS was sent yet.
			return raw, nil, &tlsError{err}
		}
		return nil, nil, &tlsError{err}
	}
	name, refused := own.nameOf(conn.ConnectionState(), clientRole)
	if refused != nil {
		return conn, nil, refused
	}
	return conn, &name, nil
}

// judgeHello returns a *RefusedError, or nil.
func (m *Mesh) judgeHello(self Identity, in message, certified *string) error {
	if in.Type != hello {
		return outOfTurn(in, nil)
	}
	if refused := m.judge(in.Kind, self, in.Identity, certified, in.Want, self.RaftID); refused != nil {
		return refused
	}
	if m.listenerOf(in.Kind) == nil {
		return refuse(NotServing, "node %s does not accept connections of kind %s while it starts or stops; retry",
			self.NodeID, in.Kind)
	}
	return nil
}

// outOfTurn is the error for an unexpected message: the other end's refusal, or nonsense.
func outOfTurn(in message, raw net.Conn) error {
	if in.Type != refusal {
		return refuse(Protocol, "message of type %q out of turn", byte(in.Type))
	}
	e := &RefusedError{Reason: in.Reason, Message: in.Text, Remote: true}
	if raw != nil {
		e.Address = raw.RemoteAddr().String()
	}
	return e
}

// turnAway sends and logs a refusal, and ends the connection once the other end has read it. conn
// carries the refusal; nil: it cannot be sent. It returns the error.
func (m *Mesh) turnAway(raw, conn net.Conn, in message, err error) error {
	if m.closing.Err() != nil {
		return err
	}
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok {
		if refused = m.misread(err); refused == nil {
			// A port scan, a TCP health check or a lost node: there is no other end to inform.
			m.metrics.done(accepting, broken)
			if errors.Is(err, errIdentity) {
				m.log.every(time.Minute, "identity", slog.LevelError, "this node has no valid identity", "error", err)
			}
			m.opts.Logger.Debug("connection ended during its handshake", "from", raw.RemoteAddr().String(), "error", err)
			return err
		}
	}
	m.metrics.done(accepting, refused.Reason)
	m.logRefusal(refused, raw.RemoteAddr().String(), in.Identity.NodeID)
	if conn == nil || refused.Remote {
		return err
	}
	kind := in.Kind
	if !kind.known() {
		kind = 0
	}
	_ = raw.SetDeadline(time.Now().Add(lingerTimeout))
	var first []byte
	if e, ok := errors.AsType[*strangerError](err); ok {
		first = e.first
	} else if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		first = e.RecordHeader[:]
	}
	if isHTTP(string(first)) {
		_, _ = io.WriteString(conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+
			"runlog: this port is for the nodes of a cluster; clients have others (--grpc-listen, --http-listen)\n")
	} else if out, err := (message{Type: refusal, Kind: kind, Reason: refused.Reason, Text: refused.Message}).encode(); err == nil {
		_, _ = conn.Write(out)
	}
	linger(raw, conn)
	return err
}

// linger lets the other end read the refusal: a close with unread bytes would reset the connection,
// and the refusal could be lost.
func linger(raw, conn net.Conn) {
	type halfCloser interface{ CloseWrite() error }
	if c, ok := conn.(halfCloser); ok {
		_ = c.CloseWrite()
	}
	if c, ok := raw.(halfCloser); ok && conn != raw {
		_ = c.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, raw, 64<<10)
}

// logRefusal logs a refusal at this end, once a minute for each node, or address without a node
// name.
func (m *Mesh) logRefusal(e *RefusedError, address, node string) {
	who := node
	if who == "" {
		who = address
		if host, _, err := net.SplitHostPort(address); err == nil {
			who = host
		}
	}
	key := who + " " + string(e.Reason)
	about := []any{"reason", string(e.Reason), "why", e.Message, "address", address, "node", node}
	if e.Remote {
		m.log.every(time.Minute, key, slog.LevelWarn, "a node refused this one", about...)
	} else {
		m.log.every(time.Minute, key, slog.LevelWarn, "a node was refused", about...)
	}
}

// tune sets the options of every connection between nodes, for any listener.
func tune(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive)
		_ = tcp.SetNoDelay(true)
		endUnacked(tcp, unackedTimeout)
	}
}

// material is the node's certificate as it is on disk now.
func (m *Mesh) material() *material {
	now, err := m.opts.TLS.current()
	if err != nil {
		m.log.every(time.Minute, "reload "+err.Error(), slog.LevelError,
			"cannot load changed certificate files; keeping the old ones", "error", err)
	}
	m.warnOfExpiry()
	return now
}

// withDeadline bounds the handshake of a dial by the context and by Close.
func (m *Mesh) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.handshakeTimeout)
	stop := context.AfterFunc(m.closing, cancel)
	return ctx, func() { stop(); cancel() }
}
