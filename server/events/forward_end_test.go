package events_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server"
	"runlog/server/cluster"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestForwardingEndsAPP10: a follower retries a call that the leader refuses for LeaderWait and no
// longer. It does not retry for a caller that has disconnected.
func TestForwardingEndsAPP10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, func(_ int, o *server.Options) { o.LeaderWait = 300 * time.Millisecond })
		r := all.Followers()[0].Server.Internals().Replica
		// As when nothing was sent.
		refuse := func(*cluster.Leadership) error { return raft.ErrNotLeader }
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range map[string]func() error{
			"refused": func() error { return r.AtLeader(t.Context(), refuse) },
			"gone":    func() error { return r.AtLeader(gone, refuse) },
			"read":    func() error { return r.ReadIndex(gone) },
		} {
			ended := make(chan error, 1)
			go func() { ended <- call() }()
			select {
			case err := <-ended:
				var own *contract.Error
				if !errors.As(err, &own) || own.Reason != contract.ReasonNotLeader && own.Reason != contract.ReasonNoLeader {
					t.Errorf("%s: %v", name, err)
				}
			case <-time.After(servertest.Patience / 3):
				t.Fatalf("%s: the call does not end", name)
			}
		}
	})
}
