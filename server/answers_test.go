package server_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestAnswersFitStockClientsREAD8: pages of windows, events and lists, and the changes of a run,
// end early rather than exceed the 4 MiB of a client with default limits. The pages together are
// everything.
func TestAnswersFitStockClientsREAD8(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Opts.MaxPayloadBytes = 1 << 20
		n.Restart()
		conn, err := grpc.NewClient(n.Server.Addresses().GRPC, n.Dialer(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		const runs, events, changes = 150, 6, 100
		labels := func(number int) map[string]string {
			all := map[string]string{}
			for i := range 64 {
				name := fmt.Sprint(number, "-", i)
				all[name+strings.Repeat("n", 256-len(name))] = strings.Repeat("v", 256)
			}
			return all
		}
		for i := range runs {
			if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
				RunId: fmt.Sprint("run-", i), TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
				PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"}, Labels: labels(i),
			}}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range changes {
			if _, err := n.Runs.UpdateRun(n.Context(), &runlogv1.UpdateRunRequest{RunId: "run-0", Labels: labels(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		// As a google.protobuf.Struct, these payloads have more than 4 MiB each.
		numbers := fmt.Sprintf(`{"a":[0%s]}`, strings.Repeat(",0", 500_000))
		for i := range events {
			n.Append("run-1", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(i)), servertest.Payload(numbers)))
		}

		listed, token := 0, ""
		for more := true; more; more = token != "" {
			page, err := runlogv1.NewRunServiceClient(conn).ListRuns(n.Context(), &runlogv1.ListRunsRequest{PageSize: 1000, PageToken: token})
			if err != nil {
				t.Fatalf("ListRuns: %v", err)
			}
			listed, token = listed+len(page.Runs), page.NextPageToken
		}
		servertest.WantEqual(t, "runs", listed, runs)
		if run, err := runlogv1.NewRunServiceClient(conn).GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "run-0"}); err != nil || len(run.Changes) == 0 {
			t.Errorf("GetRun: %d changes, %v", len(run.GetChanges()), err)
		}
		export, err := runlogv1.NewAuditServiceClient(conn).ExportEvents(n.Context(), &runlogv1.ExportEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		exported := 0
		for {
			m, err := export.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("ExportEvents: %v", err)
			}
			exported += len(m.Events)
		}
		servertest.WantEqual(t, "exported events", exported, events)
		for _, form := range []runlogv1.PayloadForm_Form{runlogv1.PayloadForm_JSON, runlogv1.PayloadForm_STRUCT} {
			queried, token := 0, ""
			for more := true; more; more = token != "" {
				page, err := runlogv1.NewAuditServiceClient(conn).QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{PayloadForm: form, PageToken: token})
				if err != nil {
					t.Fatalf("QueryEvents as %v: %v", form, err)
				}
				queried, token = queried+len(page.Events), page.NextPageToken
			}
			servertest.WantEqual(t, "events of the window", queried, events)
			read := 0
			for after := uint64(0); read == 0 || after > 0; {
				page, err := runlogv1.NewEventServiceClient(conn).ListEvents(n.Context(),
					&runlogv1.ListEventsRequest{RunId: "run-1", PayloadForm: form, AfterSeq: after})
				if err != nil {
					t.Fatalf("ListEvents as %v: %v", form, err)
				}
				read, after = read+len(page.Events), page.NextAfterSeq
			}
			servertest.WantEqual(t, "events of the run", read, events)
		}
	})
}
