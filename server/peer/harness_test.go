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
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
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
func start(t *testing.T, self Identity, tls *TLS, change func(*Options)) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{self: self, clock: clockAt(noon), reg: prometheus.NewRegistry()}
	opts := Options{
		Listener: l, TLS: tls, Self: func() Identity { return self }, Clock: n.clock.read, Registerer: n.reg,
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
func serving(t *testing.T, self Identity, tls *TLS, change func(*Options)) *node {
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
func (n *node) logged(t *testing.T, parts ...string) {
	t.Helper()
	eventually(t, func() error {
	lines:
		for line := range strings.Lines(n.log.String()) {
			for _, p := range parts {
				if !strings.Contains(line, p) {
					continue lines
				}
			}
			return nil
		}
		return fmt.Errorf("no line with %q in the log of %s:\n%s", parts, n.self.NodeID, n.log.String())
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// receive fails where nothing comes.
func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
	}
	return got
}

// refusedWith fails unless the error is a refusal for the reason, by the side, that says all the
// parts.
func refusedWith(t *testing.T, conn net.Conn, err error, reason Reason, remote bool, parts ...string) {
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
func talk(t *testing.T, dialled, accepted net.Conn) {
	t.Helper()
	for _, c := range []net.Conn{dialled, accepted} {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
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

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t.TempDir()}
	if err := MakeCA(a.dir, noon.Add(-30*day)); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate that is valid from one time and for so long, in a directory of its own,
// and returns the paths that LoadTLS wants.
func (a authority) issue(t *testing.T, node string, from time.Time, valid time.Duration) (ca, cert, key string) {
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
func (a authority) tls(t *testing.T, node string) *TLS {
	t.Helper()
	return a.tlsAt(t, node, clockAt(noon), 110*day)
}

// tlsAt is one that is valid from 20 days before noon for so long.
func (a authority) tlsAt(t *testing.T, node string, c *clock, valid time.Duration) *TLS {
	t.Helper()
	ca, cert, key := a.issue(t, node, noon.Add(-20*day), valid)
	loaded, err := LoadTLS(ca, cert, key, c.read)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func copyFile(t *testing.T, from, to string) {
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
func (n *node) count(t *testing.T, name string, labels ...string) float64 {
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
