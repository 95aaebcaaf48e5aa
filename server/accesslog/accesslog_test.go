package accesslog

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
)

// TestNoSecretSEC7: a token that a caller put in a path, or in a field that a refusal names, is not
// recorded.
func TestNoSecretSEC7(t *testing.T) {
	t.Parallel()
	var payload string
	l := New(Options{Node: "n1", Clock: time.Now, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Append: func(_ context.Context, req *runlogv1.AppendEventsRequest) error {
			payload = string(req.Events[0].GetPayloadJson())
			return nil
		}})
	token, _ := auth.NewToken()
	for _, c := range []struct{ method, message string }{
		{"POST /v1/tokens/" + token + ":revoke", "the token is not accepted"},
		{"POST /v1/runs/" + strings.Repeat("ü", 500) + "/" + token, "the token is not accepted"},
		{"/runlog.v1.EventService/AppendEvents", `events[0].tenantId is "` + token + `", and token:ci may not write to that tenant`},
	} {
		l.Denied(t.Context(), rpc.Call{Address: "192.0.2.1:1", Method: c.method}, "UNAUTHENTICATED", status.Error(codes.Unauthenticated, c.message))
		if strings.Contains(payload, token[:12]) || !strings.Contains(payload, "runlog-token, not recorded") || !strings.Contains(payload, c.method[:8]) {
			t.Errorf("%s, %s: recorded %s", c.method, c.message, payload)
		}
	}
}
