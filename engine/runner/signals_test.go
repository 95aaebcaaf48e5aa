package runner_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestSignalAfterFailureSIG6: a signal to a run that waits is followed again at once, not at the
// next sweep, if the runner could not follow it.
func TestSignalAfterFailureSIG6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSignalAfterFailureSIG6)
}

func testSignalAfterFailureSIG6(t *testing.T) {
	b := newBed(t)
	var refused atomic.Bool
	refuse := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if method == runlogv1.QueueService_RequeueRun_FullMethodName && !refused.Swap(true) {
			return status.Error(codes.PermissionDenied, "the roles of the runner are about to come")
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	p := b.startWith(t, client.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(refuse)}})
	id, _ := p.begin(p.manifest(acceptance))
	b.accepts(t, id, "CANCEL")
	sent := time.Now()
	bubble.Until(t, "the end of the run", func() bool { return slices.Contains(b.types(t, id), "RunCancelled") })
	if took := time.Since(sent); !refused.Load() || took > 10*time.Second {
		t.Errorf("the CANCEL is followed after %v; the first try was refused: %t", took, refused.Load())
	}
}
