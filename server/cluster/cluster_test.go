package cluster

import (
	"net"
	"testing"
)

// TestCloseRightAfterNew: a start that fails closes the cluster at once, maybe before its server
// serves. Such a server has not failed, so the process goes on.
func TestCloseRightAfterNew(t *testing.T) {
	for range 50 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
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
}
