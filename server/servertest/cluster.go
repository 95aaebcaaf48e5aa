package servertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Numbered is an event that is another for each number.
func Numbered(i int) *runlogv1.EventWrite {
	e := NewEvent("StepStarted")
	e.StepId = fmt.Sprint("step-", i)
	return e
}

// Local reads the records of a run as a node has them.
func (n *Node) Local(runID string, last uint64) []*runlogv1.EventRecord {
	n.T.Helper()
	resp, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: runID, Consistency: runlogv1.Consistency_LOCAL, MinSeq: last})
	if err != nil {
		n.T.Fatalf("node %s: %v", n.Opts.NodeID, err)
	}
	return resp.Events
}

// WantSame wants every node that runs to have the same records of a run, byte for byte.
func (ns Nodes) WantSame(runID string, last uint64) {
	ns[0].T.Helper()
	var want []byte
	for _, n := range ns {
		if n.Server == nil {
			continue
		}
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(&runlogv1.ListEventsResponse{Events: n.Local(runID, last)})
		if err != nil {
			n.T.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			n.T.Errorf("run %q at node %s is another than at the first node", runID, n.Opts.NodeID)
		}
	}
}

// MoveLeader transfers the leadership to another node.
func MoveLeader(t testing.TB, all Nodes) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		leader := all.Leader()
		_, err := runlogv1.NewClusterServiceClient(leader.Conn).TransferLeadership(leader.Context(), &runlogv1.TransferLeadershipRequest{})
		if err == nil && all.Leader() != leader {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the leadership stays: %v", err)
			return
		}
	}
}

// Other is one of them that is not the one.
func (ns Nodes) Other(closed *Node) *Node {
	for _, n := range ns {
		if n != closed {
			return n
		}
	}
	return nil
}

// Clusters returns a client of ClusterService.
func (n *Node) Clusters() runlogv1.ClusterServiceClient {
	return runlogv1.NewClusterServiceClient(n.Conn)
}

// JoinToken makes a join token for one node.
func (n *Node) JoinToken() string {
	n.T.Helper()
	resp, err := n.Clusters().CreateJoinToken(n.Context(), &runlogv1.CreateJoinTokenRequest{})
	if err != nil {
		n.T.Fatal(err)
	}
	return resp.Token
}

// Says wants an error with a reason, and a text that says what matters.
func Says(t testing.TB, err error, reason contract.Reason, words ...string) {
	t.Helper()
	r := Refused(t, err, reason)
	for _, w := range words {
		if !strings.Contains(r.Message, w) {
			t.Errorf("%q does not say %q", r.Message, w)
		}
	}
}
