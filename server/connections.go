package server

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// How a node divides the files that its process may have open. A database that cannot open a file
// stops the node, so connections get what is left.
const (
	// databases may be open at a time: the store and the projection, a store that is being
	// received, and a projection that is being rebuilt.
	databases = 4
	// fewestFiles of a database is Pebble's own minimum, and mostFiles its default.
	fewestFiles, mostFiles = 64, 1000
	// otherFiles is for the log, other nodes, the admin listener, backups and the Go runtime.
	otherFiles = 192
	// adminConnections have a bound of their own, so that operators get in when clients do not.
	adminConnections = 32
	// fewFiles is the limit below which a node warns at its start.
	fewFiles = 1024
)

// shareFiles divides the files that the process may have open into those of each database and the
// connections of clients. The connections get a quarter if the limit is too low for all.
func shareFiles(limit int) (database, connections int) {
	database = min(max(limit/16, fewestFiles), mostFiles)
	return database, max(limit-databases*database-otherFiles, limit/4)
}

// Each connection takes memory before its first call: buffers, goroutines, and TLS records.
// A node gives connections of clients an eighth of its memory (SEC-6).
const (
	connectionBytes = 64 << 10
	connectionShare = 8
)

// clientConnections returns how many connections clients may have open. openFiles is 0 if files are
// not limited.
func clientConnections(memory int64, openFiles int) int {
	limit := int(memory / connectionShare / connectionBytes)
	if openFiles > 0 {
		_, files := shareFiles(openFiles)
		limit = min(limit, files)
	}
	return limit
}

// connections bounds the accepted connections of several listeners together.
type connections struct {
	limit   int64 // 0: none
	log     *slog.Logger
	open    atomic.Int64
	told    atomic.Int64 // when a refusal was logged last, in nanoseconds
	refused prometheus.Counter
}

// newConnections bounds the connections of listeners with this name in metrics.
func newConnections(name string, limit int, log *slog.Logger, reg prometheus.Registerer) (c *connections, unregister func() error) {
	labels := prometheus.Labels{"listeners": name}
	c = &connections{limit: int64(limit), log: log, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "connections", Name: "refused_total", ConstLabels: labels,
		Help: "Connections that were closed at once because of the limit.",
	})}
	all := []prometheus.Collector{
		c.refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "connections", Name: "open", ConstLabels: labels,
			Help: "Open connections.",
		}, func() float64 { return float64(c.open.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "connections", Name: "limit", ConstLabels: labels,
			Help: "How many connections may be open, so that memory and files are left for the node's work. 0: no limit.",
		}, func() float64 { return float64(limit) }),
	}
	reg.MustRegister(all...)
	return c, func() error {
		for _, m := range all {
			reg.Unregister(m)
		}
		return nil
	}
}

// bound returns a listener whose connections count.
func (c *connections) bound(l net.Listener) net.Listener { return &boundListener{l, c} }

type boundListener struct {
	net.Listener
	all *connections
}

// Accept returns the next connection within the limit. It closes those above the limit.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if open := l.all.open.Add(1); l.all.limit == 0 || open <= l.all.limit {
			limitSilence(conn)
			return &boundConn{Conn: conn, release: sync.OnceFunc(func() { l.all.open.Add(-1) })}, nil
		}
		l.all.open.Add(-1)
		l.all.refuse(conn)
	}
}

func (c *connections) refuse(conn net.Conn) {
	c.refused.Inc()
	now, told := time.Now().UnixNano(), c.told.Load()
	if now-told > int64(time.Minute) && c.told.CompareAndSwap(told, now) {
		c.log.Warn("too many connections; closing new ones", "limit", c.limit, "from", conn.RemoteAddr().String(),
			"remedy", "close idle connections, or raise --memory or the limit of open files (ulimit -n)")
	}
	_ = conn.Close()
}

// boundConn is a connection that counts until it is closed.
type boundConn struct {
	net.Conn
	release func()
}

// Close closes the connection once.
func (c *boundConn) Close() error {
	defer c.release()
	return ignoreClosed(c.Conn.Close())
}

// CloseWrite ends the writing side. net/http does so before it closes a connection with unread
// input, so that the client gets the answer.
func (c *boundConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// silenceLimit is how long a client's machine may leave data unacknowledged before the connection
// is closed. It is gRPC's default, which gRPC cannot set itself on a connection that is wrapped.
const silenceLimit = 20 * time.Second

// limitSilence sets the limit on a TCP connection where the system has one.
func limitSilence(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = setUserTimeout(int(fd), silenceLimit) })
	}
}
