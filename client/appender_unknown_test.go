package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestAppenderOpenAnswer (APP-10): an answer without a reason of the contract, or with one of a
// later version, leaves the outcome open, as it does for AppendEvents.
func TestAppenderOpenAnswer(t *testing.T) {
	for name, err := range map[string]error{
		"internal":     grpcstatus.Error(codes.Internal, "cannot encode the answer"),
		"canceled":     grpcstatus.Error(codes.Canceled, "context canceled"),
		"a new reason": refusal(codes.Unavailable, "REASON_OF_TOMORROW", "who knows", nil),
	} {
		t.Run(name, func(t *testing.T) {
			answer := &runlogv1.AppendStreamResponse{Status: grpcstatus.Convert(err).Proto()}
			r := &recorder{answer: func(int, *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error) { return answer, nil }}
			fake := &fakeServer{appendStream: r.serve, appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) { return nil, err }}
			inAppender(t, fake, Options{MaxAttempts: 2}, func(t *testing.T, c *Client, a *Appender) {
				if _, err := a.Append(t.Context(), event("r")); !failure(t, err).Unknown() || !failure(t, err).Retryable() {
					t.Errorf("Append: %v", err)
				}
				if _, err := c.AppendEvents(t.Context(), one("r")); !failure(t, err).Unknown() || !failure(t, err).Retryable() {
					t.Errorf("AppendEvents: %v", err)
				}
			})
		})
	}
}

// TestAppenderOpenAnswerToMany (APP-10): calls that shared a message with an open outcome do not
// say that nothing was stored, whatever the next try finds.
func TestAppenderOpenAnswerToMany(t *testing.T) {
	r := &recorder{held: true}
	r.answer = func(n int, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error) {
		switch n {
		case 1:
			return &runlogv1.AppendStreamResponse{Results: make([]*runlogv1.AppendResult, 1)}, nil
		case 2:
			return &runlogv1.AppendStreamResponse{Status: &status.Status{Code: int32(codes.Internal)}}, nil
		default:
			return refusedMessage(codes.PermissionDenied, ReasonPermissionDenied), nil
		}
	}
	inAppender(t, &fakeServer{appendStream: r.serve}, Options{}, func(t *testing.T, _ *Client, a *Appender) {
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				_, err := a.Append(t.Context(), event("r"))
				var e *Error
				if i > 0 && (!errors.As(err, &e) || !e.Unknown()) {
					t.Errorf("call %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		r.open()
		all.Wait()
	})
}

// TestUnsettledByRefusal (APP-10): the checks that come before the one for duplicates, and those of
// a state that may change, tell nothing of an earlier try.
func TestUnsettledByRefusal(t *testing.T) {
	fence := func(given, current string) map[string]string {
		return map[string]string{"fence": given, "current_fence": current}
	}
	for _, test := range []struct {
		reason   Reason
		code     codes.Code
		metadata map[string]string
		settles  bool
	}{
		{ReasonRunScopeMismatch, codes.FailedPrecondition, nil, true},
		{ReasonLeaseLost, codes.FailedPrecondition, fence("3", "4"), true},
		// Its lease may be on its way to the run.
		{ReasonLeaseLost, codes.FailedPrecondition, fence("4", "3"), false},
		// The rules are those of a node: another one may have stored the events.
		{ReasonSchemaValidationFailed, codes.InvalidArgument, nil, false},
		{ReasonInvalidArgumentField, codes.InvalidArgument, nil, false},
		{ReasonPayloadHasSecret, codes.InvalidArgument, nil, false},
		{ReasonPayloadTooLarge, codes.InvalidArgument, nil, false},
		{ReasonKeyMismatch, codes.InvalidArgument, nil, false},
		// The step or the run may wait later, and be seen later.
		{ReasonStepNotWaiting, codes.FailedPrecondition, nil, false},
		{ReasonRunNotWaiting, codes.FailedPrecondition, nil, false},
		{ReasonStepNotFound, codes.NotFound, nil, false},
		{ReasonRunNotFound, codes.NotFound, nil, false},
		{"REASON_OF_TOMORROW", codes.FailedPrecondition, nil, false},
	} {
		t.Run(fmt.Sprint(test.reason, test.metadata), func(t *testing.T) {
			tries := 0
			first := func() error {
				if tries++; tries == 1 {
					return grpcstatus.Error(codes.Unavailable, "connection reset")
				}
				return nil
			}
			refused := refusal(test.code, string(test.reason), "no", test.metadata)
			r := &recorder{answer: func(int, *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error) {
				return &runlogv1.AppendStreamResponse{Status: grpcstatus.Convert(refused).Proto()}, first()
			}}
			fake := &fakeServer{appendStream: r.serve, appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
				if err := first(); err != nil {
					return nil, err
				}
				return nil, refused
			}}
			inAppender(t, fake, Options{MaxAttempts: 3}, func(t *testing.T, c *Client, a *Appender) {
				_, appended := a.Append(t.Context(), event("r"))
				tries = 0
				_, called := c.AppendEvents(t.Context(), one("r"))
				for _, err := range []error{appended, called} {
					if e := failure(t, err); e.Unknown() == test.settles || test.settles && e.Reason != test.reason {
						t.Errorf("got %v", err)
					}
				}
			})
		})
	}
}

// TestAppenderLeavesAWrongServer: a server that answers wrongly, and reads no more, does not hold
// up the messages that are sent to it.
func TestAppenderLeavesAWrongServer(t *testing.T) {
	serve := func(stream appendServer) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		time.Sleep(time.Second)
		if err := stream.Send(&runlogv1.AppendStreamResponse{}); err != nil { // no result
			return err
		}
		<-stream.Context().Done()
		return nil
	}
	inAppender(t, &fakeServer{appendStream: serve}, Options{}, func(t *testing.T, _ *Client, a *Appender) {
		began := time.Now()
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				e := event(fmt.Sprint("r", i))
				e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, 1<<20)}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := a.Append(ctx, e); !failure(t, err).Unknown() {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
