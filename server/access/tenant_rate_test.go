package access_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestTenantRateSEC6: a tenant over its limits is refused with TENANT_RATE_LIMITED or
// QUOTA_EXCEEDED, with a delay, through any member and in streams; nothing of it is stored, and
// other tenants do not notice.
func TestTenantRateSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		root, hash := auth.NewToken()
		all := servertest.StartNodes(t, 3, func(_ int, o *server.Options) {
			o.Authenticate, o.AdminToken, o.CheckpointInterval = true, hash, time.Hour
		})
		leader := slices.Index(all, all.Leader())
		n := all[(leader+1)%len(all)]
		roles := []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER}
		var owner string
		bubble.Until(t, "the members have a secret", func() bool {
			resp, err := n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{Name: "owner", Tenants: []string{"tenant"}, Roles: roles})
			owner = resp.GetToken()
			return err == nil
		})
		// The first append borrows what a thousand seconds earn: the test ends before.
		_, err := n.Access().SetTenantLimits(n.Bearing(root), &runlogv1.SetTenantLimitsRequest{
			TenantId: "tenant", Limits: &runlogv1.TenantLimits{EventsPerSecond: 1, Streams: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Events.AppendEvents(n.Bearing(owner), &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("a", 1000)}); err != nil {
			t.Fatal(err)
		}
		_, err = n.Events.AppendEvents(n.Bearing(owner), &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("b", 1)})
		servertest.Refused(t, err, contract.ReasonTenantRateLimited)
		answer := n.HTTP("POST", "/v1/runs/run/events:append", `{"events":[`+servertest.HTTPEvent("c")+`]}`, "Authorization", "Bearer "+owner)
		answer.Refused(t, contract.ReasonTenantRateLimited)
		if answer.Header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After in %v", answer.Header)
		}
		stream, err := n.Events.AppendStream(n.Bearing(owner))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("d", 1)}); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil || codes.Code(resp.Status.GetCode()) != codes.ResourceExhausted {
			t.Errorf("stream: %v, %v", resp, err)
		}
		// The follower may have opened the first stream before it knew of the limit.
		bubble.Until(t, "a second stream is refused", func() bool {
			ctx, cancel := context.WithCancel(n.Bearing(owner))
			defer cancel()
			second, err := n.Events.AppendStream(ctx)
			if err == nil {
				_ = second.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("e", 1)})
				_, err = second.Recv()
			}
			if err != nil {
				servertest.Refused(t, err, contract.ReasonQuotaExceeded)
			}
			return err != nil
		})
		list, err := n.Events.ListEvents(n.Bearing(owner), &runlogv1.ListEventsRequest{RunId: "run"})
		if err != nil || list.LastSeq != 1000 {
			t.Errorf("the run is at %d, %v", list.GetLastSeq(), err)
		}
		free := n.Token(root, "free", []string{"other"}, roles...)
		n.HTTP("POST", "/v1/runs/free/events:append", `{"events":[`+strings.ReplaceAll(servertest.HTTPEvent("a"), `"tenantId":"tenant"`, `"tenantId":"other"`)+`]}`,
			"Authorization", "Bearer "+free).OK(t)
	})
}

// TestTenantQuotaSEC6: a tenant makes no run beyond its runs that may be open, and appends nothing
// once it has stored its bytes. Its runs go on meanwhile, and what they end makes room.
func TestTenantQuotaSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		set := func(l *runlogv1.TenantLimits) {
			t.Helper()
			if _, err := n.Access().SetTenantLimits(n.Context(), &runlogv1.SetTenantLimitsRequest{TenantId: "tenant", Limits: l}); err != nil {
				t.Fatal(err)
			}
		}
		used := func() *runlogv1.TenantUsage {
			t.Helper()
			resp, err := n.Access().GetTenantLimits(n.Context(), &runlogv1.GetTenantLimitsRequest{TenantId: "tenant"})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Usage
		}
		try := func(run string, events ...*runlogv1.EventWrite) error {
			_, err := n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: events})
			return err
		}
		set(&runlogv1.TenantLimits{RunningRuns: 2})
		n.Append("a", servertest.NewEvent("RunStarted"))
		n.Append("b", servertest.NewEvent("RunStarted"))
		bubble.Until(t, "two runs are open", func() bool { return used().RunningRuns == 2 })
		servertest.Refused(t, try("c", servertest.NewEvent("RunStarted")), contract.ReasonQuotaExceeded)
		// The first one is a duplicate.
		n.Append("a", servertest.NewEvent("RunStarted"), servertest.NewEvent("RunCompleted"))
		bubble.Until(t, "a run may be made after one has ended", func() bool { return try("c", servertest.NewEvent("RunStarted")) == nil })

		_, err := n.Access().SetTenantLimits(n.Context(), &runlogv1.SetTenantLimitsRequest{
			TenantId: "tenant", Limits: &runlogv1.TenantLimits{RunningRuns: 10_001},
		})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		_, err = n.Access().SetTenantLimits(n.Context(), &runlogv1.SetTenantLimitsRequest{TenantId: rpc.AccessTenant, Limits: &runlogv1.TenantLimits{Streams: 1}})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)

		bubble.Until(t, "four events count", func() bool { return used().StoredBytes >= 4*512 })
		stored := used().StoredBytes
		set(&runlogv1.TenantLimits{StoredBytes: stored + 1})
		n.Append("b", servertest.NewEvent("StepStarted", servertest.Step("s")))
		bubble.Until(t, "the bytes count", func() bool { return used().StoredBytes > stored })
		bubble.Until(t, "the limit is known", func() bool {
			return servertest.ReasonIn(status.Convert(try("b", servertest.NewEvent("StepCompleted", servertest.Step("s"))))) == contract.ReasonQuotaExceeded
		})
		servertest.Refused(t, try("d", servertest.NewEvent("RunStarted")), contract.ReasonQuotaExceeded)
		set(&runlogv1.TenantLimits{})
		bubble.Until(t, "without a limit", func() bool { return try("d", servertest.NewEvent("RunStarted")) == nil })
	})
}
