package accesslog

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/auth"
	"runlog/server/rpc"
)

// openLog opens an access log with the journal of a disk.
func openLog(t testing.TB, disk vfs.FS, appendTo func(context.Context, *runlogv1.AppendEventsRequest) error) *Log {
	t.Helper()
	l, err := Open(Options{Node: "n1", Cluster: "c1", FS: disk, Path: "access.late", Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), Append: appendTo})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestNoSecretSEC7: a token that a caller put in a path, or in a field that a refusal names, is not
// recorded.
func TestNoSecretSEC7(t *testing.T) {
	t.Parallel()
	var payload string
	l := openLog(t, vfs.NewMem(), func(_ context.Context, req *runlogv1.AppendEventsRequest) error {
		payload = string(req.Events[0].GetPayloadJson())
		return nil
	})
	token, _ := auth.NewToken()
	for _, c := range []struct{ method, message string }{
		{"POST /v1/tokens/" + token + ":revoke", "the token is not accepted"},
		{"POST /v1/runs/" + strings.Repeat("ü", 500) + "/" + token, "the token is not accepted"},
		{"/runlog.v1.EventService/AppendEvents", `events[0].tenantId is "` + token + `", and token:ci may not write to that tenant`},
	} {
		l.Denied(t.Context(), rpc.Call{Identity: auth.Local, Address: "192.0.2.1:1", Method: c.method}, "UNAUTHENTICATED", status.Error(codes.Unauthenticated, c.message))
		if strings.Contains(payload, token[:12]) || !strings.Contains(payload, "runlog-token, not recorded") || !strings.Contains(payload, c.method[:8]) {
			t.Errorf("%s, %s: recorded %s", c.method, c.message, payload)
		}
	}
}

// TestNotRecordedSEC7: a call that cannot be recorded is refused with the cause: only what a retry
// can cure is called a lack of a leader.
func TestNotRecordedSEC7(t *testing.T) {
	t.Parallel()
	var cause error
	l := openLog(t, vfs.NewMem(), func(context.Context, *runlogv1.AppendEventsRequest) error { return cause })
	disk := rpc.Status(&contract.Error{Reason: contract.ReasonDiskLow, Message: "the disk is nearly full"})
	for _, c := range []struct {
		cause  error
		code   codes.Code
		reason contract.Reason
	}{
		{raft.ErrNotLeader, codes.Unavailable, contract.ReasonNoLeader},
		{rpc.Status(&contract.Error{Reason: contract.ReasonOutcomeUnknown, Message: "unknown"}), codes.Unavailable, contract.ReasonNoLeader},
		{context.DeadlineExceeded, codes.Unavailable, contract.ReasonNoLeader},
		{disk, codes.ResourceExhausted, contract.ReasonDiskLow},
		{rpc.Invalid("payload", "is too large"), codes.Internal, ""},
		{errors.New("a bug"), codes.Internal, ""},
	} {
		cause = c.cause
		err := rpc.Status(l.Allowed(t.Context(), rpc.Call{Method: "/runlog.v1.AccessService/ListTokens"}))
		var reason contract.Reason
		for _, d := range status.Convert(err).Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok {
				reason = contract.Reason(info.Reason)
			}
		}
		if status.Code(err) != c.code || reason != c.reason || !strings.Contains(err.Error(), "ListTokens was not done, because it could not be recorded") {
			t.Errorf("%v: %s, %v", c.cause, reason, err)
		}
	}
}

// TestRequestFieldsSEC7: the fields of a request are in the event, without secrets, and however
// long they are the event fits.
func TestRequestFieldsSEC7(t *testing.T) {
	t.Parallel()
	var payload []byte
	l := openLog(t, vfs.NewMem(), func(_ context.Context, req *runlogv1.AppendEventsRequest) error {
		payload = req.Events[0].GetPayloadJson()
		return nil
	})
	token, _ := auth.NewToken()
	long := strings.Repeat("<", 1<<20)
	for _, c := range []struct{ sent, want string }{
		{"the customer was told", "the customer was told"},
		{"said " + token, "said (runlog-token, not recorded)"},
		{long, long[:maxRequest-len("planner")]},
	} {
		err := l.Allowed(t.Context(), rpc.Call{Address: "192.0.2.1:1", Method: "/s/M", Request: []rpc.RecordedField{
			{Name: "subscriptionId", Text: "planner"}, {Name: "reason", Text: c.sent}, {Name: "which", Text: long}}})
		if err != nil {
			t.Fatal(err)
		}
		var d struct{ Request map[string]string }
		if err := json.Unmarshal(payload, &d); err != nil {
			t.Fatal(err)
		}
		if d.Request["subscriptionId"] != "planner" || d.Request["reason"] != c.want || len(payload) > contract.DefaultMaxPayloadBytes {
			t.Errorf("%.40s: recorded %.200s in %d bytes", c.sent, d.Request["reason"], len(payload))
		}
	}
}
