package cluster_test

import (
	"errors"
	"testing"

	"runlog/proto/contract"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestNoLeaderWithAnAdvertisedAddress (D8): a node that has just lost the leadership does not send
// callers back to itself, under the address that it advertises.
func TestNoLeaderWithAnAdvertisedAddress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.GRPCAdvertise = "node-1.example.com:7410" })
		var refused *contract.Error
		if err := n.Server.Internals().Replica.NotLeader(); !errors.As(err, &refused) || refused.Reason != contract.ReasonNoLeader {
			t.Errorf("got %v, want %s", err, contract.ReasonNoLeader)
		}
	})
}
