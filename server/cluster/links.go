package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/server/peer"
)

const (
	// maxLinks is far more than the nodes of a cluster: links to lost nodes make room.
	maxLinks = 64
	// maxAnswer bounds one answer of another node.
	maxAnswer = 64 << 20
	// Flow control, in bytes: of one call, and of a connection.
	linkStreamWindow = 1 << 20
	linkConnWindow   = 8 << 20
)

// Link is the connection to another node. It is made at the first use, and again after it broke.
type Link struct {
	// Conn carries calls.
	Conn *grpc.ClientConn
	node nodev1.NodeServiceClient
	key  linkKey
	// about is the node's last answer about itself.
	about atomic.Pointer[nodev1.DescribeResponse]
	// refused is the reason of the last refused connection.
	refused atomic.Pointer[peer.RefusedError]
	absent  atomic.Bool // at the last attempt, the host answered that no node runs there
	dropped atomic.Bool // it made room, or all links are closed
}

type linkKey struct{ id, address string }

// dialer is the part of a mesh that links need.
type dialer interface {
	Dial(ctx context.Context, kind peer.Kind, address, wantRaftID string) (net.Conn, error)
	Credentials() credentials.TransportCredentials
}

// links are the connections to other nodes.
type links struct {
	dial    dialer
	closing sync.WaitGroup // of dropped links

	mu     sync.Mutex
	closed bool
	open   map[linkKey]*Link
}

// to returns the link to a node; with an empty id, any node may answer.
func (l *links) to(id, address string) (*Link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	key := linkKey{id, address}
	if k := l.open[key]; k != nil {
		return k, nil
	}
	k := &Link{key: key}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.connect(ctx, k) }),
		grpc.WithTransportCredentials(l.dial.Credentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		}),
		// Callers notice a paused or unreachable node by their own deadlines.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithInitialWindowSize(linkStreamWindow), grpc.WithInitialConnWindowSize(linkConnWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		return nil, err
	}
	k.Conn, k.node = conn, nodev1.NewNodeServiceClient(conn)
	if l.open == nil || len(l.open) >= maxLinks {
		l.dropLocked()
	}
	l.open[key] = k
	return k, nil
}

func (l *links) connect(ctx context.Context, k *Link) (net.Conn, error) {
	conn, err := l.dial.Dial(ctx, peer.KindNode, k.key.address, k.key.id)
	var refused *peer.RefusedError
	errors.As(err, &refused)
	k.refused.Store(refused)
	k.absent.Store(errors.Is(err, syscall.ECONNREFUSED))
	return conn, err
}

// dropLocked ends all links, elsewhere: gRPC may wait for one. Links in use are made again.
func (l *links) dropLocked() {
	for _, k := range l.open {
		k.dropped.Store(true)
		l.closing.Go(func() { _ = k.Conn.Close() })
	}
	l.open = make(map[linkKey]*Link)
}

func (l *links) close() error {
	l.mu.Lock()
	l.closed = true
	l.dropLocked()
	l.mu.Unlock()
	l.closing.Wait()
	return nil
}

// closed reports whether the link was dropped to make room, and must be made again. A nil link is
// closed.
func (k *Link) closed() bool { return k != nil && k.dropped.Load() }

// describe asks a node how it is.
func (k *Link) describe(ctx context.Context) (*nodev1.DescribeResponse, error) {
	about, err := k.node.Describe(ctx, &nodev1.DescribeRequest{})
	if err != nil {
		// gRPC's error for a refused connection has fewer details.
		if refused := k.refused.Load(); refused != nil {
			return nil, refused
		}
		return nil, err
	}
	k.about.Store(about)
	return about, nil
}

// GRPCAddress is the node's address for clients; empty: not known yet.
func (k *Link) GRPCAddress() string {
	if about := k.about.Load(); about != nil {
		return about.GrpcAddress
	}
	return ""
}

// askTerm is raft.Options.AskTerm.
func (c *Cluster) askTerm(ctx context.Context, m raft.Member) (uint64, error) {
	k, err := c.links.to(m.ID, m.Address)
	if err != nil {
		return 0, err
	}
	resp, err := k.node.ConfirmTerm(ctx, &nodev1.ConfirmTermRequest{})
	return resp.GetTerm(), err
}

// ask is raft.Options.Ask.
func (c *Cluster) ask(ctx context.Context, m raft.Member) (raft.Progress, error) {
	k, err := c.links.to(m.ID, m.Address)
	if err != nil {
		return raft.Progress{}, err
	}
	d, err := k.describe(ctx)
	if err != nil {
		return raft.Progress{}, err
	}
	return raft.Progress{Term: d.Term, LastIndex: d.LastIndex, LastTerm: d.LastTerm, LastContact: time.Duration(d.LastContactNanos)}, nil
}
