package peer

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// defaultTimeout bounds a handshake, TLS included, at both ends, and the TCP connect before it.
	defaultTimeout = 5 * time.Second
	// lingerTimeout is how long a refused end has to read the refusal.
	lingerTimeout = time.Second
	// maxHandshakes under way at the accepting end; one more ends the oldest.
	maxHandshakes = 64
	// unackedTimeout is how long the other end may not acknowledge data before the connection ends.
	// Calls over it fail then, and the next ones make another connection.
	unackedTimeout = 3 * time.Second
	// expiryWarning is how long before its end a certificate is warned of.
	expiryWarning = 14 * 24 * time.Hour
)

// keepAlive detects a lost machine in half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Options of a Mesh.
type Options struct {
	// Listener takes the connections of other nodes. The Mesh owns it.
	Listener net.Listener
	// Dial connects to an address of another node. Default: TCP with keep-alives that detect a lost
	// machine.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS of this node; nil: plain text, for development.
	TLS *TLS
	// Self is asked at each connection: a node gets its cluster later.
	Self func() Identity
	// Admit checks the other end, at both ends; nil admits all. The error's text is sent to the
	// other end. A *RefusedError keeps its reason; any other error means NotAMember. It must not
	// block.
	Admit func(Kind, Identity) error
	// Logger; default: discards.
	Logger *slog.Logger
	// Registerer of metrics; default: a registry of its own.
	Registerer prometheus.Registerer
	// Clock of log limits; default: time.Now. Certificates have the clock that LoadTLS was given,
	// and deadlines of connections always the system's.
	Clock func() time.Time

	handshakeTimeout time.Duration // set by tests; else defaultTimeout
}

// EnsureDefaults sets the defaults of unset fields.
func (o *Options) EnsureDefaults() {
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.handshakeTimeout == 0 {
		o.handshakeTimeout = defaultTimeout
	}
}

// Mesh makes and takes the connections of one node. Its methods may be called by many goroutines.
type Mesh struct {
	opts    Options
	log     *limitedLog
	metrics *metrics

	closing context.Context // done once Close was called
	stop    context.CancelFunc
	// the accept loop, handshakes and dials; added to under mu, while not closed
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		closed bool
		// accepted net.Conns during their handshake, the oldest first
		pending   *list.List
		listeners map[Kind]*listener
	}
}

// New starts to take connections. Those of a kind are refused until Listener is called for it.
func New(opts Options) *Mesh {
	opts.EnsureDefaults()
	m := &Mesh{opts: opts, log: newLimitedLog(opts.Logger, opts.Clock)}
	m.closing, m.stop = context.WithCancel(context.Background())
	m.mu.pending = list.New()
	m.mu.listeners = make(map[Kind]*listener)
	m.metrics = newMetrics(opts.Registerer, opts.TLS)
	m.warnOfExpiry()
	m.running.Go(m.acceptLoop)
	return m
}

// Addr returns the address of the listener.
func (m *Mesh) Addr() net.Addr { return m.opts.Listener.Addr() }

// Close ends handshakes, closes all listeners and joins all goroutines. Connections already handed
// out stay open.
func (m *Mesh) Close() error {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		m.running.Wait()
		return nil
	}
	m.mu.closed = true
	m.stop()
	err := m.opts.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	for e := m.mu.pending.Front(); e != nil; e = e.Next() {
		_ = e.Value.(net.Conn).Close()
	}
	var listeners []*listener
	for _, l := range m.mu.listeners {
		listeners = append(listeners, l)
	}
	m.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	m.running.Wait()
	m.metrics.unregister(m.opts.Registerer)
	return err
}

// begin counts an activity that Close waits for; false: the mesh is closed. The caller calls
// running.Done.
func (m *Mesh) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return false
	}
	m.running.Add(1)
	return true
}

// warnOfExpiry warns daily when the node's certificate expires soon.
func (m *Mesh) warnOfExpiry() {
	if m.opts.TLS == nil {
		return
	}
	end, left := m.opts.TLS.expiry()
	if left < expiryWarning {
		m.log.every(24*time.Hour, "expiry", slog.LevelWarn,
			"this node's certificate expires soon; replace it",
			"ends", end.UTC().Format(time.RFC3339))
	}
}
