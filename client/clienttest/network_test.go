package clienttest

import (
	"testing"
	"time"

	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// TestOn: the network of a server that a test has made can be cut between clients and nodes, and
// between nodes.
func TestOn(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		srv := Start(t, On(n), Nodes(3))
		c := srv.Client(fast)
		mustAppend(t, c, "run", "a")
		lost := srv.Leader()
		host := srv.wire.host(lost)
		n.Refuse(ClientHost, host)
		for i := range srv.nodes {
			if i != lost {
				n.Refuse(host, srv.wire.host(i))
			}
		}
		time.Sleep(time.Minute)
		mustAppend(t, c, "run", "b")
		if next := srv.Leader(); next == lost {
			t.Errorf("%d leads, which no majority reaches", next)
		}
		wantStored(t, c, "run", "a", "b")
	})
}
