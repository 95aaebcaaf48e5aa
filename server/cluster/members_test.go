package cluster

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/server/peer"
	"runlog/testbed/bubble"
)

// voter answers as a node that could not be reached at first.
type voter struct {
	noDialer
	nodev1.UnimplementedNodeServiceServer
	raftID   string
	listener *bufconn.Listener
	failures atomic.Int32 // dials that still fail
}

func (v *voter) Dial(ctx context.Context, _ peer.Kind, _, _ string) (net.Conn, error) {
	if v.failures.Add(-1) >= 0 {
		return nil, errors.New("busy")
	}
	return v.listener.DialContext(ctx)
}

func (v *voter) Describe(context.Context, *nodev1.DescribeRequest) (*nodev1.DescribeResponse, error) {
	return &nodev1.DescribeResponse{RaftId: v.raftID}, nil
}

// TestBusyVoterIsNotDown: a member is removed although a remaining voter does not answer at once,
// and is not removed if that voter never answers or another node answers in its place.
func TestBusyVoterIsNotDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			raftID   string
			failures int32
			removed  bool
		}{{"c.1", 1, true}, {"c.1", 1 << 20, false}, {"c.2", 0, false}} {
			v := &voter{raftID: c.raftID, listener: bufconn.Listen(1 << 16)}
			v.failures.Store(c.failures)
			s := grpc.NewServer()
			nodev1.RegisterNodeServiceServer(s, v)
			go func() { _ = s.Serve(v.listener) }()
			var leader Cluster
			leader.links.dial = v
			members := []raft.Member{{ID: "b.1", Address: "b:1", Voter: true}, {ID: "c.1", Address: "c:1", Voter: true}}
			err := leader.survives(t.Context(), members, members[0])
			if c.removed && err != nil || !c.removed && !errors.Is(err, ErrRefused) {
				t.Errorf("%+v: %v", c, err)
			}
			if err := leader.links.close(); err != nil {
				t.Error(err)
			}
			s.Stop()
		}
	})
}
