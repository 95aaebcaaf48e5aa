package transport

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/streams"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// TestNothingIsSentAfterItsTermD3: a node sends nothing of a past leadership once its stored term
// has changed. It may have read the entries from a log that the next leader has changed.
func TestNothingIsSentAfterItsTermD3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dialled := errors.New("dialled")
		l, err := network.New(1).Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		dial := func(string, time.Duration) (net.Conn, error) { return nil, dialled }
		trans := New(streams.New(l, "here:1", dial), hclog.NewNullLogger(), Sender{
			Term: func() uint64 { return 7 }, Committed: func() uint64 { return 0 },
			Silent: func() bool { return false }, Nonce: unknown,
		}, forgetful)
		t.Cleanup(func() { _ = trans.Close() })
		for term, want := range map[uint64]error{6: ErrNotLeading, 7: dialled} {
			entries := &hraft.AppendEntriesRequest{Term: term, PrevLogEntry: 1, PrevLogTerm: 1, Entries: []*hraft.Log{{Index: 2, Term: 6}}}
			if err := trans.AppendEntries("x", "x:1", entries, &hraft.AppendEntriesResponse{}); !errors.Is(err, want) {
				t.Errorf("entries in term %d: %v, want %v", term, err, want)
			}
			snapshot := &hraft.InstallSnapshotRequest{Term: term, LastLogTerm: 6}
			if err := trans.InstallSnapshot("x", "x:1", snapshot, &hraft.InstallSnapshotResponse{}, strings.NewReader("")); !errors.Is(err, want) {
				t.Errorf("a snapshot in term %d: %v, want %v", term, err, want)
			}
		}
	})
}

// TestSnapshotReachesCandidateD4: a node is a candidate, and gets a snapshot of its own term. The
// leader is gone after that. The node forgets the leader, so that others can get its vote. It has
// got the nonce of the snapshot's last entry (D3).
func TestSnapshotReachesCandidateD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		announced := make(chan string, 1)
		members := hraft.Configuration{Servers: []hraft.Server{{ID: "leader", Address: "leader"}, {ID: "voter", Address: "voter"}, {ID: "node", Address: "node"}}}
		hosts := network.New(1)
		node := newPlainNode(t, hosts, "node", members, 100*time.Millisecond)
		node.trans.Announced = func(index, term uint64, nonce []byte) { announced <- fmt.Sprintf("%d %d %v", index, term, nonce) }
		raft := node.start(t, node.trans)
		bubble.Until(t, "the node stands for election", func() bool { return raft.State() == hraft.Candidate })
		leader := newPlainNode(t, hosts, "leader", members, time.Minute)
		leader.reach(node)
		leader.trans.Nonce = func(index, term uint64) ([]byte, error) { return []byte{byte(index), byte(term)}, nil }
		req := &hraft.InstallSnapshotRequest{
			RPCHeader:       hraft.RPCHeader{ProtocolVersion: hraft.ProtocolVersionMax, ID: []byte("leader"), Addr: []byte("leader")},
			SnapshotVersion: hraft.SnapshotVersionMax, Term: raft.CurrentTerm(), LastLogIndex: 9, LastLogTerm: 5,
			Configuration: hraft.EncodeConfiguration(members), ConfigurationIndex: 1, Size: 1,
		}
		err := leader.trans.InstallSnapshot("node", "node", req, &hraft.InstallSnapshotResponse{}, strings.NewReader("x"))
		if err == nil {
			t.Fatal("a snapshot was installed by a node that cannot")
		}
		if got := <-announced; got != "9 5 [9 5]" {
			t.Errorf("announced are entry, term and nonce %s", got)
		}
		bubble.Until(t, "the node forgets the leader", func() bool {
			address, _ := raft.LeaderWithID()
			return address == ""
		})
	})
}

// forgetful notes nothing.
var forgetful = Notes{
	Led:          func(uint64, string) error { return nil },
	Acknowledged: func(string, uint64, uint64) {},
	Announced:    func(uint64, uint64, []byte) {},
}

// unknown knows the nonce of no entry.
func unknown(uint64, uint64) ([]byte, error) { return nil, nil }
