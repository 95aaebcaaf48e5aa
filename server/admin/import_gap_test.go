package admin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// far is a record with a runSeq that foreign's eventId has no room for.
func far(runID string, seq uint64, s int, eventType, rest string) string {
	return strings.Replace(servertest.Foreign(runID, 9, s, eventType, rest), `"runSeq":"9"`, fmt.Sprintf(`"runSeq":"%d"`, seq), 1)
}

// TestReadsAcrossGapsREAD1: pages, minSeq, asOfSeq and watches of a run whose gaps have no end,
// before and after a restart.
func TestReadsAcrossGapsREAD1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		const most = contract.MaxImportedSeq
		n := servertest.Start(t)
		n.Imports(servertest.Foreign("old", 3, 1, "RunStarted", ""), servertest.Foreign("old", 4, 2, "StepStarted", `,"stepId":"a"`), far("old", most, 3, "RunCompleted", "")).OK(t)
		duplicate := servertest.NewEvent("RunCompleted", func(e *runlogv1.EventWrite) {
			e.TenantId, e.ProjectId, e.EnvironmentId, e.PlanId, e.PlanVersion = "t", "p", "e", "plan", "1"
			e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"other":1}`)}
		})
		for range 2 {
			if r := n.Append("old", duplicate).Results[0]; r.RunSeq != most || !r.Idempotent || !r.Diverged {
				t.Errorf("a duplicate of what is behind the gap: %v", r)
			}
			var seqs []uint64
			for after := uint64(0); ; {
				page, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: "old", AfterSeq: after, PageSize: 1, MinSeq: 1 << 52})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page.Events {
					seqs = append(seqs, e.RunSeq)
				}
				if after = page.NextAfterSeq; after == 0 {
					break
				}
			}
			if !slices.Equal(seqs, []uint64{3, 4, most}) {
				t.Errorf("pages have %d", seqs)
			}
			for asOf, want := range map[uint64]uint64{1: 0, 3: 3, 1 << 52: 4, most: most} {
				s, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "old", AsOfSeq: proto.Uint64(asOf)})
				if err != nil || s.Snapshot.LastEventSeq != want {
					t.Errorf("as of %d: %v, %v", asOf, s, err)
				}
			}
			w := n.Watch(&runlogv1.WatchRunRequest{RunId: "old", AfterSeq: 1 << 52, View: runlogv1.WatchView_EVENT})
			m := w.Until("events", func(m *runlogv1.WatchRunResponse) bool { return m.GetEvents() != nil })
			if e := m.GetEvents().Events; len(e) != 1 || e[0].RunSeq != most {
				t.Errorf("a watch from inside of the gap: %v", m)
			}
			w.Cancel()
			n.Restart()
		}
		if r := n.Append("old", servertest.NewEvent("Noted", func(e *runlogv1.EventWrite) { e.TenantId, e.ProjectId, e.EnvironmentId = "t", "p", "e" })).Results[0]; r.RunSeq != most+1 {
			t.Errorf("appended behind the gap: %v", r)
		}
		servertest.VerifyChain(t, n.List("old"))
		if e := n.Export(&runlogv1.ExportEventsRequest{TenantId: "t"}); len(e.Events) != 4 || e.Events[3].RunSeq != most+1 {
			t.Errorf("exported %v", e.Events)
		}
		res, err := n.Projection.ProjectRun(n.Context(), &runlogv1.ProjectRunRequest{RunId: "old"})
		if err != nil || !res.MatchesStored || res.Snapshot.LastEventSeq != most+1 {
			t.Errorf("projected: %v, %v", res, err)
		}
	})
}

// TestImportBehindThePlanENV1: if the begin of a run is missing, the inherited plan of its first
// record is stored and stays inherited, so the digests of the record do not change (APP-11).
func TestImportBehindThePlanENV1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		whole := strings.Replace(servertest.Foreign("old", 2, 1, "RunPaused", `,"contractVersion":"1.1","idempotencyKey":"pause-old"`), `"planId":"plan","planVersion":"1",`, "", 1)
		n.Imports(strings.Replace(whole, `"old"`, `"bare"`, 1)).OK(t)
		n.Imports(strings.Replace(whole, `"runId"`, `"planId":"plan","planVersion":"1","inherited":["planId","planVersion"],"runId"`, 1)).OK(t)
		if answer := n.Imports(strings.Replace(whole, `"runId"`, `"planId":"pl|an","inherited":["planId"],"runId"`, 1)); answer.Code != 400 || !strings.Contains(string(answer.Body), "events[0].planId") {
			t.Errorf("a plan of no name: HTTP %d %s", answer.Code, answer.Body)
		}
		bare, kept := n.List("bare")[0], n.List("old")[0]
		if bare.PlanId != "" || kept.PlanId != "plan" || kept.PlanVersion != "1" || !slices.Equal(kept.Inherited, bare.Inherited) {
			t.Errorf("inherited %v: plan %q, version %q", kept.Inherited, kept.PlanId, kept.PlanVersion)
		}
		servertest.VerifyChain(t, n.List("old"))
		if s := n.Snapshot("old"); s.PlanId != "plan" || s.PlanVersion != "1" {
			t.Errorf("the snapshot has plan %q, version %q", s.PlanId, s.PlanVersion)
		}
	})
}
