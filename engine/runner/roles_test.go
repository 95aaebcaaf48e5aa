package runner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// rights are those of a client, which a test takes away. WhoAmI tells them.
type rights struct {
	lost atomic.Pointer[[]runlogv1.Role_Value]
}

// reads lists what needs the role reader.
var reads = []string{"GetRun", "ListRuns", "ReadEvents", "GetSnapshot", "WatchRun", "WatchRuns", "ListQueuedRuns"}

func (r *rights) refuses(method string) error {
	lost := r.lost.Load()
	name := method[strings.LastIndexByte(method, '/')+1:]
	needs := runlogv1.Role_PRODUCER
	if slices.Contains(reads, name) {
		needs = runlogv1.Role_READER
	}
	if lost == nil || name == "WhoAmI" || !slices.Contains(*lost, needs) {
		return nil
	}
	s, err := status.New(codes.PermissionDenied, "the role is missing").WithDetails(&errdetails.ErrorInfo{Domain: "runlog", Reason: "PERMISSION_DENIED"})
	if err != nil {
		return err
	}
	return s.Err()
}

func (r *rights) options() client.Options {
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := r.refuses(method)
		if err == nil {
			err = next(ctx, method, req, reply, cc, opts...)
		}
		if who, ok := reply.(*runlogv1.WhoAmIResponse); ok && r.lost.Load() != nil {
			who.Roles = slices.DeleteFunc(who.Roles, func(role runlogv1.Role_Value) bool { return slices.Contains(*r.lost.Load(), role) })
		}
		return err
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if err := r.refuses(method); err != nil {
			return nil, err
		}
		return next(ctx, desc, cc, method, opts...)
	}
	return client.Options{MinBackoff: 5 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}}
}

// TestMissingRolesSEC3: a runner says which roles it needs in its tenant and does not have.
func TestMissingRolesSEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b, has := newBed(t), &rights{}
		o := b.options(t, b.srv.Client(has.options()))
		for _, tt := range []struct {
			lost []runlogv1.Role_Value
			want string
		}{
			{nil, ""}, {[]runlogv1.Role_Value{runlogv1.Role_OPERATOR, runlogv1.Role_ATTESTER}, ""},
			{[]runlogv1.Role_Value{runlogv1.Role_READER}, `"local" lacks the roles reader in the tenant acme`},
			{[]runlogv1.Role_Value{runlogv1.Role_READER, runlogv1.Role_PRODUCER}, `lacks the roles producer, reader in the tenant acme`},
		} {
			has.lost.Store(&tt.lost)
			r, err := runner.New(o)
			if err != nil {
				t.Fatal(err)
			}
			err = r.Permitted(t.Context())
			missing, _ := errors.AsType[*runner.RolesError](err)
			if (missing != nil) != (tt.want != "") || missing != nil && !strings.Contains(missing.Error(), tt.want) {
				t.Errorf("without %v: %v", tt.lost, err)
			}
		}
	})
}

// TestLostRolesSEC3: a runner that has lost a role costs no run a start attempt. It leases no runs
// until it has the role again, and then goes on.
func TestLostRolesSEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLostRolesSEC3)
}

func testLostRolesSEC3(t *testing.T) {
	b, has := newBed(t), &rights{}
	b.start(t).kill() // It makes the queue.
	p := b.startWith(t, has.options())
	attempts := func() map[string]uint32 {
		res, err := b.c.ListQueuedRuns(t.Context(), &runlogv1.ListQueuedRunsRequest{TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]uint32{}
		for _, r := range res.GetRuns() {
			all[r.GetRunId()] = r.GetStartAttempts()
		}
		return all
	}
	ref := b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"count"}]}`))
	has.lost.Store(&[]runlogv1.Role_Value{runlogv1.Role_READER})
	b.request(t, "first", ref)
	bubble.Until(t, "a lease", func() bool { return attempts()["first"] > 0 })
	time.Sleep(time.Minute)
	b.request(t, "second", ref)
	time.Sleep(time.Hour)
	if got := attempts(); got["first"] != 1 || got["second"] != 0 {
		t.Errorf("start attempts %v", got)
	}
	has.lost.Store(nil)
	for _, id := range []string{"first", "second"} {
		bubble.Until(t, "the end of "+id, func() bool { status, _, _ := p.steps(id); return status != "running" })
		if status, _, _ := p.steps(id); status != "success" {
			t.Errorf("the run %s is %s: %q", id, status, b.types(t, id))
		}
	}
}
