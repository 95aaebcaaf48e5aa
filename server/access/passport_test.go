package access_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/datadir"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestPassportsOfEarlierKeysSEC3: forwarded calls go on while the signing key is rotated, and a
// passport that was made with an earlier key proves nothing afterwards.
func TestPassportsOfEarlierKeysSEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all, root := servertest.SecuredNodes(t)
		follower := all.Followers()[0]
		old, err := follower.Server.Internals().Access.Load().Passports.Make(&auth.Identity{Name: "token:x"}, "n")
		if err != nil {
			t.Fatal(err)
		}
		if i, err := all.Leader().Server.Internals().Access.Load().Passports.Verify(old, "n"); err != nil || i.Name != "token:x" {
			t.Fatalf("the newest key: %+v, %v", i, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var calls atomic.Int32
		ended := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				switch _, err := tryLimits(follower, root); {
				case err == nil:
					calls.Add(1)
				case status.Code(err) != codes.Unavailable: // The leader may change.
					ended <- err
					return
				}
			}
			ended <- nil
		}()
		for rotations := 0; rotations < 10; {
			switch _, err := follower.Audits().RotateSigningKey(follower.Bearing(root), &runlogv1.RotateSigningKeyRequest{}); {
			case err == nil:
				rotations++
			case status.Code(err) != codes.Unavailable:
				t.Fatal(err)
			}
		}
		before := calls.Load()
		bubble.Until(t, "calls after the rotations", func() bool { return calls.Load() > before || len(ended) > 0 })
		stop()
		if err := <-ended; err != nil {
			t.Errorf("after %d forwarded calls: %v", calls.Load(), err)
		}
		for _, n := range all {
			if i, err := n.Server.Internals().Access.Load().Passports.Verify(old, "n"); i != nil || !errors.Is(err, auth.ErrNoSecret) {
				t.Errorf("%s: an earlier key: %+v, %v", n.Opts.NodeID, i, err)
			}
		}
	})
}

// tryLimits makes a call that the leader answers.
func tryLimits(n *servertest.Node, root string) (*runlogv1.SetTenantLimitsResponse, error) {
	return n.Access().SetTenantLimits(n.Bearing(root), &runlogv1.SetTenantLimitsRequest{TenantId: "tenant", Limits: &runlogv1.TenantLimits{}})
}

// TestThousandsOfKeysSEC3: after thousands of rotations of the signing key, a node verifies
// passports with as little work as after the first, and holds one private key.
func TestThousandsOfKeysSEC3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rotations := 2000
		if testing.Short() {
			rotations = 300
		}
		var root string
		n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { root = servertest.Secured(o) })
		rotate := func() {
			if _, err := n.Audits().RotateSigningKey(n.Bearing(root), &runlogv1.RotateSigningKeyRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		passports := n.Server.Internals().Access.Load().Passports
		work := func() (allocations float64, keyFile int64) {
			text, err := passports.Make(&auth.Identity{Name: "token:x"}, "n")
			if err != nil {
				t.Fatal(err)
			}
			allocations = testing.AllocsPerRun(100, func() {
				if _, err := passports.Verify(text, "n"); err != nil {
					t.Error(err)
				}
			})
			file, err := os.Stat(filepath.Join(n.Opts.DataDir, datadir.KeyFile))
			if err != nil {
				t.Fatal(err)
			}
			return allocations, file.Size()
		}
		rotate()
		first, small := work()
		for range rotations {
			rotate()
		}
		if last, size := work(); last > 2*first || size > 2*small {
			t.Errorf("after %d rotations: %v allocations for a passport and a key file of %d bytes, after one %v and %d", rotations, last, size, first, small)
		}
	})
}
