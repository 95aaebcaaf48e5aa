package cluster

import (
	"testing"

	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// TestCloseRightAfterNew: a start that fails closes the cluster at once, maybe before its server
// serves. Such a server has not failed, so the process continues.
func TestCloseRightAfterNew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		for range 50 {
			listener, err := n.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(Options{
				Identity: NewIdentity("a"), Listener: listener, Save: func(Identity) error { return nil },
				Encode: func(err error) error { return err },
				Fail:   func(err error) { t.Errorf("the node stopped itself: %v", err) },
			})
			if err != nil {
				t.Fatal(err)
			}
			c.server.Stop() // The first step of Close, and then a pause.
			<-c.serving
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
