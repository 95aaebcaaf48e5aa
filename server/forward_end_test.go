package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
)

// TestForwardingEndsAPP10: a follower whose leader refuses every call asks it again for LeaderWait
// and no longer, and not at all for a caller that has gone.
func TestForwardingEndsAPP10(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3, func(_ int, o *Options) { o.LeaderWait = 300 * time.Millisecond })
	s := all.followers()[0].server
	refuse := leaderRoute[struct{}]{
		here: func() (struct{}, error) { return struct{}{}, raft.ErrNotLeader },
		there: func(context.Context, *grpc.ClientConn, ...grpc.CallOption) (struct{}, error) {
			return struct{}{}, raft.ErrNotLeader // as when nothing was sent
		},
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"refused": func() error { _, err := atLeader(t.Context(), s, refuse); return err },
		"gone":    func() error { _, err := atLeader(gone, s, refuse); return err },
		"read":    func() error { return s.readable(gone, runlogv1.Consistency_LINEARIZABLE) },
	} {
		ended := make(chan error, 1)
		go func() { ended <- call() }()
		select {
		case err := <-ended:
			var own *contract.Error
			if !errors.As(err, &own) || own.Reason != contract.ReasonNotLeader && own.Reason != contract.ReasonNoLeader {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience / 3):
			t.Fatalf("%s: the call does not end", name)
		}
	}
}
