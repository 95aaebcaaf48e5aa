package cluster

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"runlog/server/peer"
)

// noDialer reaches no node.
type noDialer struct{}

func (noDialer) Dial(context.Context, peer.Kind, string, string) (net.Conn, error) {
	return nil, net.ErrClosed
}
func (noDialer) Credentials() credentials.TransportCredentials { return insecure.NewCredentials() }

// TestLinksMakeRoom: a link that was dropped to make room reports that to its users, and is made
// again.
func TestLinksMakeRoom(t *testing.T) {
	l := links{dial: noDialer{}}
	defer l.close()
	leader, err := l.to("b.1", "b:1")
	if err != nil || leader.closed() || (*Link)(nil).closed() {
		t.Fatalf("a new link is closed, or there is none: %v", err)
	}
	for i := range maxLinks {
		if _, err := l.to("", fmt.Sprint("c:", i)); err != nil {
			t.Fatal(err)
		}
	}
	if !leader.closed() {
		t.Error("a link that made room says that it is open")
	}
	if again, err := l.to("b.1", "b:1"); err != nil || again.closed() {
		t.Errorf("the link is not made again: %v", err)
	}
}
