package raft

import (
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"
)

// TestStranger proves APP-2 and APP-7 against whoever can reach the port: a node that is the only voter of
// its group has nobody to listen to, so that no message from outside makes it step down, drop entries that
// it acknowledged, or apply others.
func TestStranger(t *testing.T) {
	b := newBed(t).start()
	b.fill("run", 0, 10)
	_, last := b.bounds()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stranger := hraft.NewNetworkTransportWithLogger(streams{listener}, 1, time.Second, hclog.NewNullLogger())
	defer func() { _ = stranger.Close() }()
	header := hraft.RPCHeader{ProtocolVersion: 3, ID: []byte("stranger"), Addr: stranger.EncodePeer("stranger", stranger.LocalAddr())}
	target := hraft.ServerAddress(b.address)
	var before hraft.Log
	if err := b.node.logs.GetLog(last-5, &before); err != nil {
		t.Fatal(err)
	}

	var vote hraft.RequestVoteResponse
	_ = stranger.RequestVote("node", target, &hraft.RequestVoteRequest{
		RPCHeader: header, Term: 100, LastLogIndex: last + 100, LastLogTerm: 99, LeadershipTransfer: true,
	}, &vote)
	var appended hraft.AppendEntriesResponse
	_ = stranger.AppendEntries("node", target, &hraft.AppendEntriesRequest{
		RPCHeader: header, Term: 200, PrevLogEntry: before.Index, PrevLogTerm: before.Term, LeaderCommitIndex: last,
		Entries: []*hraft.Log{{Index: last - 4, Term: 200, Type: hraft.LogCommand, Data: seal(t, request("forged", 0, 1))}},
	}, &appended)
	if vote.Granted || appended.Success {
		t.Errorf("the node obeys: vote %t, entries taken %t", vote.Granted, appended.Success)
	}
	if first, now := b.bounds(); first != 1 || now < last {
		t.Errorf("the log reaches from %d to %d, acknowledged were entries up to %d", first, now, last)
	}
	time.Sleep(200 * time.Millisecond)
	b.crash()
	if err := b.tryStart(); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start()
	if r, err := b.store.Run("run"); err != nil || r.LastSeq != 10 {
		t.Errorf("10 events were acknowledged, the run is %+v, error %v", r, err)
	}
	if r, err := b.store.Run("forged"); err == nil {
		t.Errorf("a stranger made run %+v", r)
	}
}
