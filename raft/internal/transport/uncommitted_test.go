package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/streams"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// TestNothingUncommittedIsAppliedAPP2: a follower has entries of an earlier leader, and is
// unreachable while a new leader commits others in their place. The first request that reaches it
// was built before these, but has the current commit index. The follower must apply the leader's
// entries only, and none of its own.
func TestNothingUncommittedIsAppliedAPP2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for range 10 {
			if cameAbout := applyBehindARequest(t); cameAbout || t.Failed() {
				return
			}
		}
		t.Error("no request said that more is committed than it sends: the test proved nothing")
	})
}

// applyBehindARequest reports whether such a request occurred.
func applyBehindARequest(t *testing.T) (cameAbout bool) {
	t.Helper()
	members := hraft.Configuration{Servers: []hraft.Server{{ID: "leader", Address: "leader"}, {ID: "voter", Address: "voter"}, {ID: "follower", Address: "follower"}}}
	hosts := network.New(1)
	follower := newPlainNode(t, hosts, "follower", members, time.Minute)
	var own []*hraft.Log
	for i := uint64(2); i <= 6; i++ {
		own = append(own, &hraft.Log{Index: i, Term: 5, Type: hraft.LogCommand, Data: []byte("never committed")})
	}
	if err := follower.log.StoreLogs(own); err != nil {
		t.Fatal(err)
	}
	follower.start(t, follower.trans)
	leader := newPlainNode(t, hosts, "leader", members, 500*time.Millisecond)
	leader.reach(follower)
	away := &awayTransport{Transport: leader.trans, open: make(chan struct{})}
	leader.log.stall = make(chan struct{})
	raft := leader.start(t, away)
	bubble.Until(t, "the leader leads", func() bool { return raft.State() == hraft.Leader })
	// replication retries with growing waits, up to 0.3 s
	bubble.Until(t, "the follower does not answer", func() bool { return away.refused() >= 7 })
	time.Sleep(50 * time.Millisecond)
	close(leader.log.stall)
	var futures []hraft.ApplyFuture
	for range 3 {
		futures = append(futures, raft.Apply([]byte("committed"), 0))
	}
	for _, f := range futures {
		if err := f.Error(); err != nil {
			t.Logf("not committed: %v", err)
			return false
		}
	}
	close(away.open)
	bubble.Until(t, "the follower applies the entries", func() bool { return len(follower.applied()) >= 3 })
	if got, want := follower.applied(), leader.applied(); !slices.Equal(got, want) {
		t.Errorf("the follower has applied %q, the leader %q", got, want)
	}
	return away.ahead()
}

// keyCurrentTerm is hashicorp/raft's key for the current term.
const keyCurrentTerm = "CurrentTerm"

// plainNode is hashicorp/raft with this package's transport, a log in memory and no store.
type plainNode struct {
	conf     *hraft.Config
	log      *stallingLog
	trans    Transport
	listener net.Listener
	reached  map[string]string // addresses of the nodes that can be reached

	mu   sync.Mutex
	data []string
}

func newPlainNode(t *testing.T, hosts *network.Network, id string, members hraft.Configuration, election time.Duration) *plainNode {
	t.Helper()
	n := &plainNode{conf: hraft.DefaultConfig(), log: &stallingLog{InmemStore: hraft.NewInmemStore()}, reached: map[string]string{}}
	n.conf.LocalID, n.conf.Logger, n.conf.CommitTimeout = hraft.ServerID(id), hclog.NewNullLogger(), 10*time.Millisecond
	n.conf.HeartbeatTimeout, n.conf.ElectionTimeout, n.conf.LeaderLeaseTimeout = election, election, election
	var err error
	if n.listener, err = hosts.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	n.trans = New(streams.New(n.listener, id, func(address string, _ time.Duration) (net.Conn, error) {
		at, ok := n.reached[address]
		if !ok {
			return nil, errors.New("no node at this address")
		}
		return hosts.Dial(context.Background(), "127.0.0.1", at)
	}), n.conf.Logger, Sender{
		Term: func() uint64 {
			term, _ := n.log.GetUint64([]byte(keyCurrentTerm))
			return term
		},
		Committed: func() uint64 { return 0 },
		Silent:    func() bool { return false },
		Nonce:     unknown,
	}, forgetful)
	t.Cleanup(func() { _ = n.trans.Close() })
	err = hraft.BootstrapCluster(n.conf, n.log, n.log, hraft.NewInmemSnapshotStore(), n.trans, members)
	if err = errors.Join(err, n.log.SetUint64([]byte(keyCurrentTerm), 5)); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *plainNode) reach(other *plainNode) {
	n.reached[string(other.conf.LocalID)] = other.listener.Addr().String()
}

func (n *plainNode) start(t *testing.T, trans hraft.Transport) *hraft.Raft {
	t.Helper()
	r, err := hraft.NewRaft(n.conf, n, n.log, n.log, hraft.NewInmemSnapshotStore(), trans)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Shutdown().Error() })
	go n.trans.Deliver(r.GetConfiguration, func(*hraft.AppendEntriesRequest) error { return nil })
	return r
}

func (n *plainNode) Apply(l *hraft.Log) any {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.data = append(n.data, fmt.Sprintf("%d: %s", l.Index, l.Data))
	return nil
}

func (n *plainNode) applied() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.data)
}

func (*plainNode) Snapshot() (hraft.FSMSnapshot, error) { return nil, errors.ErrUnsupported }
func (*plainNode) Restore(io.ReadCloser) error          { return errors.ErrUnsupported }

// stallingLog blocks writes until stall is closed, if there is one.
type stallingLog struct {
	*hraft.InmemStore
	stall chan struct{}
}

func (l *stallingLog) StoreLogs(logs []*hraft.Log) error {
	if l.stall != nil {
		<-l.stall
	}
	return l.InmemStore.StoreLogs(logs)
}

// awayTransport answers for the voter, which agrees to everything, and reaches no other node before
// open is closed.
type awayTransport struct {
	Transport
	open chan struct{}

	mu    sync.Mutex
	tries int
	first *hraft.AppendEntriesRequest // that reached the follower, but for heartbeats
}

func (a *awayTransport) RequestVote(id hraft.ServerID, _ hraft.ServerAddress, req *hraft.RequestVoteRequest, resp *hraft.RequestVoteResponse) error {
	resp.Term, resp.Granted = req.Term, id == "voter"
	return nil
}

func (a *awayTransport) RequestPreVote(id hraft.ServerID, _ hraft.ServerAddress, req *hraft.RequestPreVoteRequest, resp *hraft.RequestPreVoteResponse) error {
	resp.Term, resp.Granted = req.Term, id == "voter"
	return nil
}

func (a *awayTransport) AppendEntries(id hraft.ServerID, target hraft.ServerAddress, req *hraft.AppendEntriesRequest, resp *hraft.AppendEntriesResponse) error {
	if id == "voter" {
		resp.Term, resp.Success = req.Term, true
		return nil
	}
	select {
	case <-a.open:
		a.mu.Lock()
		if a.first == nil && req.PrevLogEntry > 0 {
			first := *req
			a.first = &first
		}
		a.mu.Unlock()
		return a.Transport.AppendEntries(id, target, req, resp)
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		if req.PrevLogEntry > 0 { // no heartbeat
			a.tries++
		}
		return errors.New("no node at this address")
	}
}

func (a *awayTransport) refused() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tries
}

// ahead reports whether the first request had a commit index past its entries.
func (a *awayTransport) ahead() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.first != nil && a.first.LeaderCommitIndex > a.first.PrevLogEntry+uint64(len(a.first.Entries))
}
