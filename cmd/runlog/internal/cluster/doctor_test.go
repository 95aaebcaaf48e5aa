package cluster

import (
	"context"
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestDoctorComparesServers: what one node says that the others do not know of is found, and the
// one that leads is believed.
func TestDoctorComparesServers(t *testing.T) {
	const cluster = "6f1c2a9d0b7e4c53a1f08d2e9b64c715"
	cutOff := &runlogv1.GetStatusResponse{ClusterId: cluster, Term: 7, NodeId: "n1"}
	leads := &runlogv1.GetStatusResponse{ClusterId: cluster, LeaderId: "n2", Term: 7, NodeId: "n2"}
	other := &runlogv1.GetStatusResponse{ClusterId: "0000000000000000000000000000000f", Term: 7, NodeId: "x"}
	named := []answer{{server: "a", status: cutOff}, {server: "b", status: leads}, {server: "c", status: other}, {server: "d", err: context.Canceled}}
	best := bestOf(named)
	if best != &named[1] {
		t.Fatalf("%s is believed", best.server)
	}
	var got []string
	for _, f := range findServers(best, named, "%s is silent", "") {
		got = append(got, f.severity.String()+" "+f.what)
	}
	want := []string{
		"ERROR n1 does not see that n2 leads",
		"ERROR b belongs to cluster 6f1c2a9d0b7e4c53a1f08d2e9b64c715, and c to 0000000000000000000000000000000f",
		"WARNING d is silent",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q", got)
	}
	if bestOf(named[3:]) != nil {
		t.Error("no server answered, and one is believed")
	}
}
