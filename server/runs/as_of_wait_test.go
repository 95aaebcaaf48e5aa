package runs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc/wire"
	"runlog/server/runs"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// brief is a node at which every time to wait is over once a run is read.
type brief struct {
	runs.Node
	end context.CancelCauseFunc
}

func (b *brief) Waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, b.end = context.WithCancelCause(ctx)
	return ctx, func() { b.end(nil) }
}

func (b *brief) Store() *storage.Store {
	if b.end != nil {
		b.end(context.DeadlineExceeded)
	}
	return b.Node.Store()
}

// TestListAsOfFoldsLongRunsTR7: what bounds the waiting of a read does not bound the folds of a
// list as of a moment: otherwise no retry could get past a long run.
func TestListAsOfFoldsLongRunsTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i := range 5 {
			n.Append("run", servertest.Steps(fmt.Sprint(i, "-"), 1000)...)
		}
		_, position := wholeList(n, &runlogv1.ListRunsRequest{})
		n.Append("run", servertest.NewEvent("RunPaused"))
		n.Settle()
		parts := n.Server.Internals()
		s := runs.New(runs.Options{
			Node: &brief{Node: parts.Replica}, Projector: parts.Projector, Clock: time.Now,
			Encoded: wire.NewSnapshots(1<<20, func(string) time.Duration { return time.Hour }),
		})
		ctx := auth.With(t.Context(), &auth.Identity{Name: "a", Tenants: auth.TenantsOf("tenant"), Roles: auth.AllRoles})
		page, err := s.ListRuns(ctx, &runlogv1.ListRunsRequest{AsOfPosition: position})
		if err != nil || len(page.Runs) != 1 || page.Runs[0].LastSeq != 5000 {
			t.Errorf("%v, %v", page, err)
		}
	})
}
