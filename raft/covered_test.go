package raft

import (
	"errors"
	"fmt"
	"io"
	"testing"

	hraft "github.com/hashicorp/raft"

	"runlog/testbed/await"
	"runlog/testbed/bubble"
)

// coveredTransport passes requests through take, as transport.deliver does.
type coveredTransport struct {
	*hraft.InmemTransport
	asked chan hraft.RPC
	n     *Node
}

// AppendEntries sends what transport sends.
func (c coveredTransport) AppendEntries(id hraft.ServerID, target hraft.ServerAddress, req *hraft.AppendEntriesRequest, resp *hraft.AppendEntriesResponse) error {
	sent, err := c.n.sender().Prepare(req)
	if err != nil {
		return err
	}
	return c.InmemTransport.AppendEntries(id, target, sent, resp)
}

// InstallSnapshot announces what transport announces.
func (c coveredTransport) InstallSnapshot(id hraft.ServerID, target hraft.ServerAddress, req *hraft.InstallSnapshotRequest, resp *hraft.InstallSnapshotResponse, data io.Reader) error {
	sent, err := c.n.sender().PrepareSnapshot(req)
	if err != nil {
		return err
	}
	return c.InmemTransport.InstallSnapshot(id, target, sent, resp, data)
}

func (c coveredTransport) Consumer() <-chan hraft.RPC { return c.asked }

// covered returns a node's transport. Its goroutine ends with the node.
func covered(trans *hraft.InmemTransport, n *Node) coveredTransport {
	c := coveredTransport{InmemTransport: trans, asked: make(chan hraft.RPC), n: n}
	go func() {
		for {
			select {
			case rpc := <-trans.Consumer():
				if req, ok := rpc.Command.(*hraft.InstallSnapshotRequest); ok {
					n.snapshots.announce(req.LastLogIndex, req.LastLogTerm, req.Leader)
				}
				if req, ok := rpc.Command.(*hraft.AppendEntriesRequest); ok {
					copied := *req // the leader keeps the original
					if err := n.take(&copied); err != nil {
						rpc.Respond(&hraft.AppendEntriesResponse{}, err)
						continue
					}
					rpc.Command = &copied
				}
				select {
				case c.asked <- rpc:
				case <-n.stop:
					return
				}
			case <-n.stop:
				return
			}
		}
	}()
	return c
}

// TestLogBeginsAfterSnapshotD5: a member that was away installs a snapshot of the leader. The
// leader has its whole log, and continues to send from where the member's log ended. The member's
// log begins right after the snapshot, and has no entry that the snapshot covers.
func TestLogBeginsAfterSnapshotD5(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1 << 20})
		g.fill("run", 0, 10)
		g.settle()
		behind := g.follower()
		g.halt(behind, true)
		g.leaveBehind("run", 10, 20)
		behind.open()
		i := behind.receive(t, g.leader())
		i.restore(t)
		i.removeOldLogs(t)
		behind.shut()
		behind.open()
		g.run(behind)
		g.fill("run", 30, 5)
		g.settle()
		if first, last := behind.bounds(); first != i.meta.Index+1 || last < first {
			t.Errorf("the log has entries %d to %d, the snapshot ends at %d", first, last, i.meta.Index)
		}
		g.expectEqual(35)
	})
}

// behindSnapshot opens a node with a snapshot of entry 10, term 2, and an empty log.
func behindSnapshot(t *testing.T, meta snapshotMeta) *Node {
	t.Helper()
	o := newBed(t).prepare("node")
	o.EnsureDefaults()
	n := newNode(o)
	if err := n.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(n.closeFiles(), o.Store.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, err := n.snapshots.record(&hraft.SnapshotMeta{Index: 10, Term: 2}, meta); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSkipCoveredD5 lists what of a request passes, by the log of the member and its snapshot of
// entry 10, term 2.
func TestSkipCoveredD5(t *testing.T) {
	request := func(prev, prevTerm uint64, entries ...uint64) *hraft.AppendEntriesRequest {
		req := &hraft.AppendEntriesRequest{PrevLogEntry: prev, PrevLogTerm: prevTerm}
		for _, index := range entries {
			req.Entries = append(req.Entries, &hraft.Log{Index: index, Term: 2})
		}
		return req
	}
	deposed := request(9, 1, 10, 11)
	deposed.Entries[0].Term = 1
	for _, c := range []struct {
		name string
		log  []uint64 // entries of the member's log
		req  *hraft.AppendEntriesRequest
		want string
	}{
		{"a heartbeat", nil, request(0, 0), "0 0 []"},
		{"from the beginning", nil, request(0, 0, 1, 2, 3), "0 0 []"},
		{"before the end", nil, request(4, 1, 5, 6), "0 0 []"},
		{"past the end", nil, request(8, 1, 9, 10, 11, 12), "0 0 [11 12]"},
		{"at the end", nil, request(10, 2, 11), "0 0 [11]"},
		{"at the end, with a log", []uint64{11, 12}, request(10, 2, 11, 12, 13), "0 0 [11 12 13]"},
		{"after the end", []uint64{11, 12}, request(12, 2, 13), "12 2 [13]"},
		{"the log holds the end", []uint64{9, 10, 11}, request(8, 1, 9, 10), "8 1 [9 10]"},
		{"a deposed leader's previous entry", nil, request(10, 1, 11), "10 1 [11]"},
		{"a deposed leader's entry", nil, deposed, "9 1 [10 11]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				n := behindSnapshot(t, snapshotMeta{})
				for _, index := range c.log {
					if err := n.logs.StoreLog(&hraft.Log{Index: index, Term: 2}); err != nil {
						t.Fatal(err)
					}
				}
				n.skipCovered(c.req)
				var indexes []uint64
				for _, e := range c.req.Entries {
					indexes = append(indexes, e.Index)
				}
				if got := fmt.Sprint(c.req.PrevLogEntry, c.req.PrevLogTerm, indexes); got != c.want {
					t.Errorf("%s passes, want %s", got, c.want)
				}
			})
		})
	}
}

// TestDeliverWaitsForNoRecordD3: a leader's entries that follow the log, and heartbeats behind
// them, do not wait while the record of a snapshot is written to a slow disk.
func TestDeliverWaitsForNoRecordD3(t *testing.T) {
	b := newBed(t)
	o := b.prepare("node")
	o.EnsureDefaults()
	n := newNode(o)
	if err := n.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(n.closeFiles(), o.Store.Close()) })
	if err := n.logs.StoreLog(&hraft.Log{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	n.snapshots.mu.Lock()
	defer n.snapshots.mu.Unlock()
	passed := make(chan struct{})
	go func() {
		n.skipCovered(&hraft.AppendEntriesRequest{PrevLogEntry: 1, PrevLogTerm: 1, Entries: []*hraft.Log{{Index: 2, Term: 1}}})
		close(passed)
	}()
	await.Receive(t, "the request to pass", passed)
}
