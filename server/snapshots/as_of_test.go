package snapshots_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestSnapshotAsOfPRJ1: the snapshot as of each event of the quickstart's runs, by runSeq and by
// persistedAt, is the fold up to there, with the digest and the substatus that it had then; also
// after a restart.
func TestSnapshotAsOfPRJ1(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for file := range servertest.ExpectedStories {
			n.AppendStory(servertest.ReadStory(t, file))
		}
		check := func() {
			for file := range servertest.ExpectedStories {
				runID := servertest.ReadStory(t, file).RunID
				records := n.List(runID)
				for i, e := range records {
					want := foldTo(n, runID, e.RunSeq)
					wantAsOf(n, &runlogv1.GetSnapshotRequest{RunId: runID, AsOfSeq: proto.Uint64(e.RunSeq)}, want)
					// A batch has one persistedAt: the state at that time includes the whole batch.
					if i+1 < len(records) && records[i+1].PersistedAt.AsTime().Equal(e.PersistedAt.AsTime()) {
						continue
					}
					wantAsOf(n, &runlogv1.GetSnapshotRequest{RunId: runID, AsOfTime: e.PersistedAt}, want)
				}
			}
		}
		check()
		n.Restart()
		check()
	})
}

func wantAsOf(n *servertest.Node, req *runlogv1.GetSnapshotRequest, want fold) {
	n.T.Helper()
	resp, err := n.Projection.GetSnapshot(n.Context(), req)
	if err != nil {
		n.T.Fatalf("%v: %v", req, err)
	}
	got := resp.Snapshot
	if got.LastEventSeq != want.LastEventSeq || got.Digest != want.digest || req.GetAsOfSeq() > 0 && got.GetSubstatus() != want.substatus {
		n.T.Errorf("%v: at %d, %q, digest %s; want %d, %q, %s", req,
			got.LastEventSeq, got.GetSubstatus(), got.Digest, want.LastEventSeq, want.substatus, want.digest)
	}
}

// TestAsOfRefusals: an invalid moment gets an error that names the field and the remedy. No call
// waits.
func TestAsOfRefusals(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Append("run", servertest.NewEvent("Noted", servertest.Step("a")))
		first := n.List("run")[0].PersistedAt.AsTime()
		for _, c := range []struct {
			req   *runlogv1.GetSnapshotRequest
			field string
			says  string
		}{
			{&runlogv1.GetSnapshotRequest{AsOfSeq: proto.Uint64(3)}, "asOfSeq", "the run is at 2"},
			{&runlogv1.GetSnapshotRequest{AsOfSeq: proto.Uint64(1), AsOfTime: timestamppb.New(first)}, "asOfTime", "set one of them"},
			{&runlogv1.GetSnapshotRequest{AsOfTime: timestamppb.New(time.Now().Add(time.Hour))}, "asOfTime", "is in the future"},
			{&runlogv1.GetSnapshotRequest{AsOfTime: &timestamppb.Timestamp{Seconds: 1, Nanos: -1}}, "asOfTime", "is not a time"},
		} {
			c.req.RunId = "run"
			_, err := n.Projection.GetSnapshot(n.Context(), c.req)
			if e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); !strings.Contains(e.Fields[c.field], c.says) {
				t.Errorf("%v: %v, want %s: %s", c.req, e.Fields, c.field, c.says)
			}
		}
		_, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", AsOfTime: timestamppb.New(first.Add(-1))})
		if e := servertest.Refused(t, err, contract.ReasonRunNotFound); e.Metadata["created_at"] != first.Format(time.RFC3339Nano) {
			t.Errorf("before the run began: %v", e.Metadata)
		}
		answer := n.HTTP(http.MethodGet, fmt.Sprintf("/v1/runs/run/snapshot?asOfTime=%s", first.Format(time.RFC3339Nano)), "")
		if answer.Code != http.StatusOK || !strings.Contains(string(answer.Body), `"lastEventSeq":"1"`) {
			t.Errorf("over HTTP: %d %s", answer.Code, answer.Body)
		}
		for _, target := range []string{"/v1/runs/run/snapshot?asOfSeq=0", "/v1/runs/run/snapshot?as_of_seq=0"} {
			s := n.Get(target)["snapshot"].(map[string]any)
			if s["lastEventSeq"] != "0" || s["status"] != "PENDING" || len(s["steps"].([]any)) != 0 {
				t.Errorf("before the first event: %v", s)
			}
		}
		n.HTTP(http.MethodGet, "/v1/runs/run/snapshot?asOfSeq=9", "").Refused(t, contract.ReasonInvalidArgumentField)
	})
}

// TestProjectRunPRJ1: a run folded from its first event equals the served snapshot, over gRPC and
// HTTP, during appends.
func TestProjectRunPRJ1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = n.TryAppend("run", servertest.NewEvent("StepStarted", servertest.Step(fmt.Sprint("s", i%7)), servertest.Attempt(uint32(1+i/7))))
			}
		}()
		bubble.Until(t, "some events", func() bool {
			s, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run"})
			return err == nil && s.Snapshot.LastEventSeq > 20
		})
		for range 20 {
			resp, err := n.Projection.ProjectRun(n.Context(), &runlogv1.ProjectRunRequest{RunId: "run"})
			if err != nil || !resp.MatchesStored {
				t.Fatalf("%v, %v", resp, err)
			}
			if want := foldTo(n, "run", resp.Snapshot.LastEventSeq); resp.Snapshot.Digest != want.digest {
				t.Fatalf("digest %s, want %s", resp.Snapshot.Digest, want.digest)
			}
		}
		stop()
		<-done
		if got := n.Post("/v1/runs/run:project", "{}"); got["matchesStored"] != true {
			t.Errorf("over HTTP: %v", got)
		}
		_, err := n.Projection.ProjectRun(n.Context(), &runlogv1.ProjectRunRequest{RunId: "nobody"})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
	})
}

// folded is a snapshot without what no event says.
func folded(n *servertest.Node, req *runlogv1.GetSnapshotRequest) *runlogv1.RunSnapshot {
	n.T.Helper()
	resp, err := n.Projection.GetSnapshot(n.Context(), req)
	if err != nil {
		n.T.Fatalf("%v: %v", req, err)
	}
	s := resp.Snapshot
	s.Substatus, s.Message, s.Labels, s.FromMetadata = nil, nil, nil, nil
	return s
}

// TestAsOfPositionTR7PRJ14: the snapshot as of the position of each append is the one that followed
// it. A time that has passed, but that no stamp has reached, is closed first.
func TestAsOfPositionTR7PRJ14(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		var positions []string
		var want []*runlogv1.RunSnapshot
		for i := range 5 {
			a := n.Append("run", servertest.NewEvent("StepStarted", servertest.Step(fmt.Sprint(i))))
			positions, want = append(positions, a.Position), append(want, folded(n, &runlogv1.GetSnapshotRequest{RunId: "run"}))
			n.Append("other", servertest.NewEvent("StepStarted", servertest.Step(fmt.Sprint(i))))
		}
		for i, p := range positions {
			servertest.WantProto(t, p, folded(n, &runlogv1.GetSnapshotRequest{RunId: "run", AsOfPosition: p}), want[i])
		}
		time.Sleep(time.Minute)
		at := timestamppb.Now()
		time.Sleep(time.Millisecond)
		resp, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", AsOfTime: at})
		if err != nil || n.Server.Internals().Replica.Store().Applied().PersistedAt < at.AsTime().UnixNano() {
			t.Errorf("the time is not closed: %v, %v", resp, err)
		}
		_, err = n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", AsOfPosition: positions[0], AsOfTime: at})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		_, err = n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "other", AsOfPosition: positions[0]})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
	})
}

// TestMomentsOfUnseenRunsTR7SEC4: a caller that sees no such run gets RUN_NOT_FOUND, and makes the
// leader close no time.
func TestMomentsOfUnseenRunsTR7SEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		n.Settle()
		other := n.Bearing(n.Token(root, "other", []string{"other"}, runlogv1.Role_READER))
		own := n.Bearing(n.Token(root, "own", []string{"tenant"}, runlogv1.Role_READER, runlogv1.Role_PRODUCER))
		if _, err := n.Events.AppendEvents(own, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.NewEvent("RunStarted")}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		at := time.Now()
		time.Sleep(time.Millisecond)
		ask := func(ctx context.Context, runID string, want contract.Reason) {
			text := at.UTC().Format(time.RFC3339Nano)
			_, err := n.Projection.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: runID, AsOfTime: timestamppb.New(at)})
			_, err2 := n.Projection.DiffRun(ctx, &runlogv1.DiffRunRequest{RunId: runID, To: text})
			_, err3 := n.Projection.ExplainStep(ctx, &runlogv1.ExplainStepRequest{RunId: runID, StepId: "a", AsOfTime: timestamppb.New(at)})
			for _, err := range []error{err, err2, err3} {
				servertest.Refused(t, err, want)
			}
		}
		store := n.Server.Internals().Replica.Store()
		ask(other, "run", contract.ReasonRunNotFound)
		ask(own, "nope", contract.ReasonRunNotFound)
		if store.Applied().PersistedAt >= at.UnixNano() {
			t.Error("the time is closed for callers that see no run")
		}
		if _, err := n.Projection.GetSnapshot(own, &runlogv1.GetSnapshotRequest{RunId: "run", AsOfTime: timestamppb.New(at)}); err != nil || store.Applied().PersistedAt < at.UnixNano() {
			t.Errorf("the time is not closed for a caller that sees the run: %v", err)
		}
	})
}
