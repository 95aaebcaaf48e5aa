package audit_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/rpc/wire"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestWindowsAreRefused: every refusal has the field and the reason.
func TestWindowsAreRefused(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		auditLoad(n, 0)
		now := time.Now()
		at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
		page, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{PageSize: 5, TenantId: "tenant"})
		if err != nil {
			t.Fatal(err)
		}
		token := page.NextPageToken
		types := make([]string, wire.MaxTypes+1)
		for i := range types {
			types[i] = fmt.Sprint("T", i)
		}
		changed := "A" + token[1:]
		if token[0] == 'A' {
			changed = "B" + token[1:]
		}
		for _, c := range []struct {
			name, field, says string
			req               *runlogv1.QueryEventsRequest
		}{
			{"empty", "to", "is not after from", &runlogv1.QueryEventsRequest{From: at(-time.Hour), To: at(-time.Hour)}},
			{"backward", "to", "is not after from", &runlogv1.QueryEventsRequest{From: at(-time.Hour), To: at(-2 * time.Hour)}},
			{"ahead", "from", "in the future", &runlogv1.QueryEventsRequest{From: at(time.Hour), To: at(2 * time.Hour)}},
			{"no time", "from", "between 1970 and 2262", &runlogv1.QueryEventsRequest{From: &timestamppb.Timestamp{Seconds: -1}}},
			{"no time either", "to", "between 1970 and 2262", &runlogv1.QueryEventsRequest{To: &timestamppb.Timestamp{Nanos: -1}}},
			{"tenant", "tenantId", "", &runlogv1.QueryEventsRequest{TenantId: strings.Repeat("x", 300)}},
			{"run", "runId", "", &runlogv1.QueryEventsRequest{RunId: "a|b"}},
			{"step", "stepId", "", &runlogv1.QueryEventsRequest{StepId: "a\nb"}},
			{"type", "types", "", &runlogv1.QueryEventsRequest{Types: []string{"a|b"}}},
			{"types", "types", "at most 100", &runlogv1.QueryEventsRequest{Types: types}},
			{"page size", "pageSize", "at most 1000", &runlogv1.QueryEventsRequest{PageSize: 1001}},
			{"no token", "pageToken", "is not a token", &runlogv1.QueryEventsRequest{PageToken: "what?"}},
			{"list token", "pageToken", "is not a token", &runlogv1.QueryEventsRequest{PageToken: n.WatchToken("run", 1)}},
			{"token another query", "pageToken", "another query", &runlogv1.QueryEventsRequest{PageToken: token, TenantId: "other"}},
			{"token of another window", "pageToken", "another query", &runlogv1.QueryEventsRequest{PageToken: token, TenantId: "tenant", From: at(-time.Hour)}},
			{"changed token", "pageToken", "", &runlogv1.QueryEventsRequest{PageToken: changed, TenantId: "tenant"}},
			{"cut token", "pageToken", "", &runlogv1.QueryEventsRequest{PageToken: token[:len(token)-4], TenantId: "tenant"}},
		} {
			_, err := n.Audit.QueryEvents(n.Context(), c.req)
			if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); !strings.Contains(r.Fields[c.field], c.says) || r.Fields[c.field] == "" {
				t.Errorf("%s: %v, want %q of %s", c.name, r.Fields, c.says, c.field)
			}
		}
		// Over HTTP an unknown filter is a typing error.
		r := n.HTTP(http.MethodGet, "/v1/audit/events?tenant=x", "").Refused(t, contract.ReasonInvalidArgumentField)
		if _, ok := r.Fields["tenant"]; !ok {
			t.Errorf("unknown filter: %v", r.Fields)
		}
	})
}

// TestAheadByTheLeaderREAD3: the clock of the leader, which makes the stamps, decides whether a
// window is in the future, not the clock of the answering node.
func TestAheadByTheLeaderREAD3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		offsets := make([]atomic.Int64, 3)
		all := servertest.StartNodes(t, 3, func(i int, o *server.Options) {
			o.Clock = func() time.Time { return time.Now().Add(time.Duration(offsets[i].Load())) }
		})
		all[0].MustAppend("run", servertest.Numbered(0))
		leader := all.Leader()
		for i, n := range all {
			if n == leader {
				offsets[i].Store(int64(40 * time.Minute)) // less than MaxClockAhead, so it leads on
			}
		}
		for _, n := range all {
			soon := timestamppb.New(time.Now().Add(20 * time.Minute))
			if got, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{From: soon}); err != nil || len(got.Events) > 0 {
				t.Errorf("node %s, which does not lead: %t: %v, %v", n.Opts.NodeID, n != leader, got, err)
			}
			later := timestamppb.New(time.Now().Add(3 * time.Hour))
			_, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{From: later})
			if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); !strings.Contains(r.Fields["from"], "in the future") {
				t.Errorf("node %s: %v", n.Opts.NodeID, r.Fields)
			}
		}
	})
}
