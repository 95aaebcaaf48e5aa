package snapshots_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// stock is a client with the defaults of gRPC.
func stock(n *servertest.Node) runlogv1.ProjectionServiceClient {
	n.T.Helper()
	conn, err := grpc.NewClient(n.Server.Addresses().GRPC, n.Dialer(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() { _ = conn.Close() })
	return runlogv1.NewProjectionServiceClient(conn)
}

// appendSteps appends a run of so many steps, with an artifact each.
func appendSteps(n *servertest.Node, runID string, steps int) {
	n.T.Helper()
	n.Append(runID, servertest.NewEvent("RunStarted"))
	for from := 0; from < steps; from += 1000 {
		var events []*runlogv1.EventWrite
		for i := from; i < min(from+1000, steps); i++ {
			events = append(events, servertest.NewEvent("StepCompleted", servertest.Step(fmt.Sprintf("step-%d", i)),
				servertest.Payload(fmt.Sprintf(`{"artifacts":[{"uri":"s3://bucket/%s/%d","kind":"table"}]}`, strings.Repeat("x", 200), i))))
		}
		n.Append(runID, events...)
	}
}

// pages reads the pages after a first one and returns the whole snapshot. No page may exceed what a
// stock client takes.
func pages(n *servertest.Node, c runlogv1.ProjectionServiceClient, req *runlogv1.GetSnapshotRequest, whole *runlogv1.RunSnapshot, next string) (*runlogv1.RunSnapshot, int) {
	n.T.Helper()
	whole = proto.CloneOf(whole)
	count := 1
	for ; next != ""; count++ {
		req.StepsPageToken = next
		page, err := c.GetSnapshot(n.Context(), req)
		if err != nil {
			n.T.Fatalf("page %d: %v", count+1, err)
		}
		s := page.Snapshot
		servertest.WantEqual(n.T, fmt.Sprintf("digest, watermark and status of page %d", count+1), fmt.Sprint(s.Digest, s.LastEventSeq, s.Status),
			fmt.Sprint(whole.Digest, whole.LastEventSeq, whole.Status))
		if last := len(whole.Steps) - 1; len(s.Steps) > 0 && last >= 0 && s.Steps[0].StepId == whole.Steps[last].StepId {
			whole.Steps[last].Attempts = append(whole.Steps[last].Attempts, s.Steps[0].Attempts...)
			s.Steps = s.Steps[1:]
		}
		whole.Signals = append(whole.Signals, s.Signals...)
		whole.PendingSignals = append(whole.PendingSignals, s.PendingSignals...)
		whole.Steps = append(whole.Steps, s.Steps...)
		whole.Artifacts = append(whole.Artifacts, s.Artifacts...)
		next = page.NextStepsPageToken
	}
	return whole, count
}

// TestSnapshotOfAnySizeREAD8: a stock client reads a run of 50,000 steps: its snapshot in pages, of
// any size, from GetSnapshot, ProjectRun and a watch. The pages together are the whole snapshot, as
// a request gets it that allows the size. They stay those of one watermark when the run continues.
func TestSnapshotOfAnySizeREAD8(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		appendSteps(n, "run", 50_000)
		n.Append("run", servertest.NewEvent("RunCompleted"))
		n.Settle()
		c := stock(n)
		first, err := c.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run"})
		if err != nil {
			t.Fatal(err)
		}
		big, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", MaxAnswerBytes: 64 << 20})
		if err != nil || big.NextStepsPageToken != "" || len(big.Snapshot.Steps) != 50_000 || len(big.Snapshot.Artifacts) != 50_000 {
			t.Fatalf("allowed 64 MiB: %d steps, more: %q, %v", len(big.GetSnapshot().GetSteps()), big.GetNextStepsPageToken(), err)
		}
		whole, count := pages(n, c, &runlogv1.GetSnapshotRequest{RunId: "run"}, first.Snapshot, first.NextStepsPageToken)
		servertest.WantProto(t, "the pages together", whole, big.Snapshot)
		if size := proto.Size(big.Snapshot); count < size>>22+1 || count > size>>22+2 {
			t.Errorf("%d pages for %d bytes", count, size)
		}
		project, err := c.ProjectRun(n.Context(), &runlogv1.ProjectRunRequest{RunId: "run"})
		if err != nil || !project.MatchesStored {
			t.Fatalf("ProjectRun: %v, %v", project.GetMatchesStored(), err)
		}
		stream, err := c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_SNAPSHOT})
		if err != nil {
			t.Fatal(err)
		}
		watched, err := stream.Recv()
		if err != nil {
			t.Fatalf("watch: %v", err)
		}
		n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("late")))
		whole, _ = pages(n, c, &runlogv1.GetSnapshotRequest{RunId: "run"}, project.Snapshot, project.NextStepsPageToken)
		servertest.WantProto(t, "the pages of ProjectRun, from before the last event", whole, big.Snapshot)
		whole, _ = pages(n, c, &runlogv1.GetSnapshotRequest{RunId: "run", StepsPageSize: 20_000}, watched.GetSnapshot(), watched.GetNextStepsPageToken())
		servertest.WantProto(t, "the pages of the watch, from before the last event", whole, big.Snapshot)
	})
}

// TestSnapshotPagesREAD8: pages have at most stepsPageSize steps, of any snapshot, current or as of
// a moment, over gRPC and HTTP, also after a restart.
func TestSnapshotPagesREAD8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		appendSteps(n, "run", 7)
		for attempt := range 3 {
			n.Append("run", servertest.NewEvent("StepFailed", servertest.Step("step-3"), servertest.Attempt(uint32(attempt+2))))
		}
		n.Append("run", servertest.NewEvent("SignalAccepted", servertest.Payload(`{"signalId":"s","signalType":"PAUSE"}`)))
		n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("step-0")))
		n.Append("run", servertest.NewEvent("RunCompleted"))
		for _, seq := range []*uint64{nil, proto.Uint64(9)} {
			req := &runlogv1.GetSnapshotRequest{RunId: "run", AsOfSeq: seq}
			want, err := n.Projection.GetSnapshot(n.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for size := uint32(1); size <= 8; size++ {
				req := &runlogv1.GetSnapshotRequest{RunId: "run", AsOfSeq: seq, StepsPageSize: size}
				first, err := n.Projection.GetSnapshot(n.Context(), req)
				if err != nil || len(first.Snapshot.Steps) > int(size) {
					t.Fatalf("pages of %d: %v, %v", size, first, err)
				}
				n.Append("run", servertest.NewEvent("Noted"))
				if size == 4 {
					n.Restart()
				}
				whole, count := pages(n, n.Projection, req, first.Snapshot, first.NextStepsPageToken)
				if count != (7+int(size)-1)/int(size) {
					t.Errorf("%d pages of %d", count, size)
				}
				got, want := proto.CloneOf(whole), proto.CloneOf(want.Snapshot)
				if seq == nil { // Events follow.
					got.LastEventSeq, got.Digest, want.LastEventSeq, want.Digest = 0, "", 0, ""
				}
				servertest.WantProto(t, fmt.Sprintf("pages of %d as of %v", size, seq), got, want)
			}
		}
		target := "/v1/runs/run/snapshot?stepsPageSize=5"
		first := n.Get(target)
		second := n.Get(target + "&stepsPageToken=" + url.QueryEscape(first["nextStepsPageToken"].(string)))
		a, b := first["snapshot"].(map[string]any)["steps"].([]any), second["snapshot"].(map[string]any)["steps"].([]any)
		if len(a) != 5 || len(b) != 2 || second["nextStepsPageToken"] != "" {
			t.Errorf("over HTTP: pages of %d and %d steps, then %q", len(a), len(b), second["nextStepsPageToken"])
		}
	})
}

// TestSnapshotTokenRefusedREAD8: a token is refused that was changed, that belongs to another run
// or to another incarnation (READ-7), or whose snapshot the events of the run do not give.
func TestSnapshotTokenRefusedREAD8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		appendSteps(n, "run", 3)
		appendSteps(n, "other", 3)
		first, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", StepsPageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		token := first.NextStepsPageToken
		refused := func(req *runlogv1.GetSnapshotRequest, reason contract.Reason, field, says string) {
			t.Helper()
			_, err := n.Projection.GetSnapshot(n.Context(), req)
			e := servertest.Refused(t, err, reason)
			if text := e.Fields[field] + err.Error(); !strings.Contains(text, says) {
				t.Errorf("%v: %v, want %s", req, text, says)
			}
		}
		refused(&runlogv1.GetSnapshotRequest{RunId: "other", StepsPageToken: token}, contract.ReasonInvalidArgumentField, "stepsPageToken", "another run")
		refused(&runlogv1.GetSnapshotRequest{RunId: "run", StepsPageToken: token + "A"}, contract.ReasonInvalidArgumentField, "stepsPageToken", "was changed")
		refused(&runlogv1.GetSnapshotRequest{RunId: "run", StepsPageToken: strings.Repeat("0", 16) + token[16:]},
			contract.ReasonResumeTokenInvalid, "stepsPageToken", "incarnation")
		other := rpc.FormatSnapshotToken(n.Incarnation(), &run.Snapshot{RunID: "run", LastEventSeq: 2}, &wire.Place{Steps: 1})
		refused(&runlogv1.GetSnapshotRequest{RunId: "run", StepsPageToken: other}, contract.ReasonInvalidArgumentField, "stepsPageToken", "start again")
		refused(&runlogv1.GetSnapshotRequest{RunId: "run", MaxAnswerBytes: 64<<20 + 1}, contract.ReasonInvalidArgumentField, "maxAnswerBytes", "at most")
		n.HTTP(http.MethodGet, "/v1/runs/run/snapshot?stepsPageToken=x", "").
			Refused(t, contract.ReasonInvalidArgumentField)
	})
}

// TestSnapshotTokenAndMomentREAD8: a moment or a minSeq with a token fits the first page, or is
// refused: the pages are those of one snapshot.
func TestSnapshotTokenAndMomentREAD8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		appendSteps(n, "run", 3)
		n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("more")))
		time.Sleep(time.Second)
		first, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", AsOfSeq: new(uint64(4)), StepsPageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		stamps := n.List("run")
		with := func(change func(*runlogv1.GetSnapshotRequest)) (*runlogv1.GetSnapshotResponse, error) {
			req := &runlogv1.GetSnapshotRequest{RunId: "run", StepsPageSize: 1, StepsPageToken: first.NextStepsPageToken}
			change(req)
			return n.Projection.GetSnapshot(n.Context(), req)
		}
		for name, same := range map[string]func(*runlogv1.GetSnapshotRequest){
			"asOfSeq":  func(r *runlogv1.GetSnapshotRequest) { r.AsOfSeq = new(uint64(4)) },
			"asOfTime": func(r *runlogv1.GetSnapshotRequest) { r.AsOfTime = stamps[3].PersistedAt },
			"minSeq":   func(r *runlogv1.GetSnapshotRequest) { r.MinSeq = 4 },
		} {
			if page, err := with(same); err != nil || page.Snapshot.LastEventSeq != 4 || len(page.Snapshot.Steps) != 1 {
				t.Errorf("%s of the first page: %v, %v", name, page, err)
			}
		}
		for field, other := range map[string]func(*runlogv1.GetSnapshotRequest){
			"asOfSeq":  func(r *runlogv1.GetSnapshotRequest) { r.AsOfSeq = new(uint64(3)) },
			"asOfTime": func(r *runlogv1.GetSnapshotRequest) { r.AsOfTime = stamps[4].PersistedAt },
			"minSeq":   func(r *runlogv1.GetSnapshotRequest) { r.MinSeq = 5 },
		} {
			_, err := with(other)
			e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
			if text := e.Fields[field]; !strings.Contains(text, "runSeq 4") || !strings.Contains(text, "stepsPageToken") {
				t.Errorf("another %s: %v", field, e)
			}
		}
		_, err = with(func(r *runlogv1.GetSnapshotRequest) { r.AsOfSeq, r.AsOfTime = new(uint64(4)), stamps[3].PersistedAt })
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
	})
}
