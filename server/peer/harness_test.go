package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

	"runlog/storage"
	"runlog/testbed/await"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

var (
	clusterA = storage.ClusterID{0xaa}
	clusterB = storage.ClusterID{0xbb}
	// noon is when the tests take place.
	noon = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)
)

const day = 24 * time.Hour

// identity of a node as most tests want it.
func identity(node string) Identity {
	return Identity{NodeID: node, RaftID: node + ".7", Cluster: clusterA, Format: 3, Version: "v-" + node}
}

// clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func clockAt(now time.Time) *clock { return &clock{now: now} }

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// buffer that a logger writes into while a test reads.
type buffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // has room for one: the log is longer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.written <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

// next waits for more text, unless there is some that no call has waited for.
func (b *buffer) next(ctx context.Context) error {
	select {
	case <-b.written:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w; the log is\n%s", context.Cause(ctx), b)
	}
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// bed is a test with a network.
type bed struct {
	testing.TB
	net *network.Network // nil: that of the system
}

// inBubble runs a test in fake time, with a network of its own.
func inBubble(t *testing.T, f func(t *bed)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { f(&bed{t, network.New(1)}) })
}

// runInBubble runs a case of a table in fake time, with a network of its own.
func runInBubble(t *testing.T, name string, f func(t *bed)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

// listen opens a listener at a free port.
func (t *bed) listen() net.Listener {
	t.Helper()
	listen := net.Listen
	if t.net != nil {
		listen = t.net.Listen
	}
	l, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// dial connects a program that is no node.
func (t *bed) dial(to string) net.Conn {
	t.Helper()
	conn, err := t.dialer()(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (t *bed) dialer() func(ctx context.Context, to string) (net.Conn, error) {
	if t.net == nil {
		return dialTCP
	}
	return t.net.Dialer("127.0.0.1")
}

// node is a Mesh and what a test looks at.
type node struct {
	*Mesh
	self  Identity
	log   buffer
	clock *clock
	reg   *prometheus.Registry
}

// start starts a node on a free port. change may be nil.
func start(t *bed, self Identity, tls *TLS, change func(*Options)) *node {
	t.Helper()
	n := &node{self: self, clock: clockAt(noon), reg: prometheus.NewRegistry()}
	n.log.written = make(chan struct{}, 1)
	opts := Options{
		Listener: t.listen(), Dial: t.dialer(), TLS: tls,
		Self: func() Identity { return self }, Clock: n.clock.read, Registerer: n.reg,
		Logger: slog.New(slog.NewTextHandler(&n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&opts)
	}
	n.Mesh = New(opts)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// serving starts a node that takes both kinds.
func serving(t *bed, self Identity, tls *TLS, change func(*Options)) *node {
	t.Helper()
	n := start(t, self, tls, change)
	n.Listener(KindRaft)
	n.Listener(KindNode)
	return n
}

func (n *node) address() string { return n.Addr().String() }

// dialTo dials another node without a wanted node.
func (n *node) dialTo(ctx context.Context, kind Kind, to *node) (net.Conn, error) {
	return n.Dial(ctx, kind, to.address(), "")
}

// logged waits until the log has a line with all the parts.
func (n *node) logged(t *bed, parts ...string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("a line with %q in the log of %s", parts, n.self.NodeID), n.log.next, func() bool {
	lines:
		for line := range strings.Lines(n.log.String()) {
			for _, p := range parts {
				if !strings.Contains(line, p) {
					continue lines
				}
			}
			return true
		}
		return false
	})
}

// refusedWith fails unless the error is a refusal for the reason, by the side, that says all the
// parts.
func refusedWith(t testing.TB, conn net.Conn, err error, reason Reason, remote bool, parts ...string) {
	t.Helper()
	if conn != nil {
		t.Error("a connection was handed out")
	}
	e, ok := errors.AsType[*RefusedError](err)
	if !ok {
		t.Fatalf("%v is no refusal; %s was wanted", err, reason)
	}
	if e.Reason != reason || e.Remote != remote || e.Address == "" {
		t.Errorf("reason %s, remote %t, address %q; want %s, %t: %v", e.Reason, e.Remote, e.Address, reason, remote, err)
	}
	for _, p := range parts {
		if !strings.Contains(e.Message, p) {
			t.Errorf("%q does not say %q", e.Message, p)
		}
	}
}

// talk carries bytes both ways, and checks that none is lost right behind the handshake.
func talk(t testing.TB, dialled, accepted net.Conn) {
	t.Helper()
	up, down := bytes.Repeat([]byte("up"), 100_000), bytes.Repeat([]byte("down"), 50_000)
	var sends sync.WaitGroup
	sends.Go(func() { _, _ = dialled.Write(up) })
	sends.Go(func() { _, _ = accepted.Write(down) })
	defer sends.Wait()
	for _, way := range []struct {
		from net.Conn
		want []byte
	}{{accepted, up}, {dialled, down}} {
		got := make([]byte, len(way.want))
		if _, err := io.ReadFull(way.from, got); err != nil || !bytes.Equal(got, way.want) {
			t.Errorf("bytes were lost or changed: %v", err)
		}
	}
}

// authority is a directory with a certificate authority, valid from 30 days before noon.
type authority struct{ dir string }

func newAuthority(t testing.TB) authority {
	t.Helper()
	a := authority{t.TempDir()}
	if err := MakeCA(a.dir, noon.Add(-30*day)); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate that is valid from one time and for so long, in a directory of its own,
// and returns the paths that LoadTLS wants.
func (a authority) issue(t testing.TB, node string, from time.Time, valid time.Duration) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	caFrom, keyFrom := CAFiles(a.dir)
	ca, caKey := CAFiles(dir)
	copyFile(t, caFrom, ca)
	copyFile(t, keyFrom, caKey)
	if _, err := IssueNode(dir, node, from, valid); err != nil {
		t.Fatal(err)
	}
	cert, key = NodeFiles(dir, node)
	return ca, cert, key
}

// tls is a node's certificate, valid from 20 days before noon to 90 days after, of a node with noon
// on its clock.
func (a authority) tls(t testing.TB, node string) *TLS {
	t.Helper()
	return a.tlsAt(t, node, clockAt(noon), 110*day)
}

// tlsAt is one that is valid from 20 days before noon for so long.
func (a authority) tlsAt(t testing.TB, node string, c *clock, valid time.Duration) *TLS {
	t.Helper()
	ca, cert, key := a.issue(t, node, noon.Add(-20*day), valid)
	loaded, err := LoadTLS(ca, cert, key, c.read)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatalf("%s: %v", filepath.Base(from), err)
	}
}

// count returns the value of a metric with the values of its labels, in their order.
func (n *node) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no %s of %q", name, labels)
	return 0
}

// authOf is what gRPC knows of a caller's connection.
func authOf(ctx context.Context) credentials.AuthInfo {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil
	}
	return p.AuthInfo
}
