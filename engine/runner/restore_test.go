package runner_test

import (
	"context"
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

// otherCluster refuses the resume tokens of watches, as a cluster does that was restored from a
// backup. Each watch with one has ended with the cluster before.
type otherCluster struct {
	grpc.ClientStream
	broken, refuses *atomic.Bool
	token           bool
}

func (s *otherCluster) SendMsg(m any) error {
	if req, ok := m.(*runlogv1.WatchRunsRequest); ok {
		s.token = req.GetResumeToken() != ""
	}
	return s.ClientStream.SendMsg(m)
}

func (s *otherCluster) RecvMsg(m any) error {
	if s.token {
		s.refuses.Store(true)
		refused, err := status.New(codes.InvalidArgument, "the token is of another cluster").WithDetails(
			&errdetails.ErrorInfo{Domain: "runlog", Reason: "RESUME_TOKEN_INVALID"})
		if err != nil {
			return err
		}
		return refused.Err()
	}
	err := s.ClientStream.RecvMsg(m)
	if res, ok := m.(*runlogv1.WatchRunsResponse); ok && err == nil && len(res.GetEvents().GetEvents()) == 0 && s.broken.Load() && !s.refuses.Load() {
		return status.Error(codes.Unavailable, "the cluster is gone")
	}
	return err
}

// TestSignalsAfterRestoreSIG6: a runner follows signals also after its cluster was restored from a
// backup, which refuses the tokens of the cluster before.
func TestSignalsAfterRestoreSIG6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSignalsAfterRestoreSIG6)
}

func testSignalsAfterRestoreSIG6(t *testing.T) {
	b := newBed(t)
	var broken, refuses atomic.Bool
	p := b.startWith(t, client.Options{MinBackoff: 5 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
		func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, name string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, d, cc, name, opts...)
			if strings.HasSuffix(name, "/WatchRuns") && err == nil {
				s = &otherCluster{ClientStream: s, broken: &broken, refuses: &refuses}
			}
			return s, err
		},
	)}})
	id, _ := p.begin(p.manifest(acceptance))
	b.accepts(t, id, "PAUSE") // The watch has a token.
	b.happens(t, id, "RunPaused")
	broken.Store(true)
	bubble.Until(t, "a token is sent", refuses.Load)
	time.Sleep(6 * time.Second)
	b.accepts(t, id, "CANCEL")
	began := time.Now()
	p.until(id, "error")
	if took := time.Since(began); took > soon {
		t.Errorf("the signal was followed after %v", took)
	}
}

// TestAnswerHasTheIDATT2: once the log has a run, the answer has its id, whatever becomes of the
// caller's watch: a call that fails would be repeated, and request another run.
func TestAnswerHasTheIDATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testAnswerHasTheIDATT2)
}

func testAnswerHasTheIDATT2(t *testing.T) {
	b := newBed(t)
	p := b.startWith(t, client.Options{MinBackoff: 5 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
		func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, name string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(name, "/WatchRun") {
				return nil, status.Error(codes.PermissionDenied, "the caller may not read")
			}
			return streamer(ctx, d, cc, name, opts...)
		},
	)}})
	run := p.ok("POST", "/api/runs", `{"manifest_id":"`+p.manifest(`{"step_key":"A"}`)+`","initiated_by":"jed"}`)
	if run["status"] != "running" {
		t.Errorf("the run is %v", run)
	}
	p.until(run["id"].(string), "success")
}

// TestSweepAfterRestoreSIG6: after a restore a run has fewer events than the runner has seen, and a
// signal among them may have lost its answer. The runner reads the run again.
func TestSweepAfterRestoreSIG6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSweepAfterRestoreSIG6)
}

func testSweepAfterRestoreSIG6(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	p.begin(p.manifest(acceptance))
	var restored atomic.Bool
	var reads atomic.Int64
	opts := client.Options{DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, name, req, reply, cc, opts...)
			if list, ok := reply.(*runlogv1.ListRunsResponse); ok && restored.Load() {
				for _, run := range list.GetRuns() {
					run.LastSeq--
				}
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(
			func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, name string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if strings.HasSuffix(name, "/ReadEvents") {
					reads.Add(1)
				}
				return streamer(ctx, d, cc, name, opts...)
			}),
	}}
	r, err := runner.New(b.options(t, b.srv.Client(opts)))
	if err != nil {
		t.Fatal(err)
	}
	look := r.Looks(10)
	for i, want := range []int64{1, 1, 2} {
		restored.Store(i == 2)
		if err := look(t.Context(), time.Now()); err != nil || reads.Load() != want {
			t.Errorf("look %d: %d reads, want %d: %v", i, reads.Load(), want, err)
		}
	}
}
