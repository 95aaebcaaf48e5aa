package client

import (
	"fmt"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestWholeSnapshotsREAD8: GetSnapshot and WatchRun read all pages of a snapshot, and put a step
// together whose attempts are on two. A request for a page gets one.
func TestWholeSnapshotsREAD8(t *testing.T) {
	step := func(id string, attempts ...uint32) *runlogv1.StepSnapshot {
		s := &runlogv1.StepSnapshot{StepId: id}
		for _, a := range attempts {
			s.Attempts = append(s.Attempts, &runlogv1.StepAttempt{LogicalAttemptId: a})
		}
		return s
	}
	pages := []*runlogv1.RunSnapshot{
		{RunId: "run", Signals: []*runlogv1.SignalDecision{{}}, Steps: []*runlogv1.StepSnapshot{step("a"), step("b", 1, 2)}},
		{RunId: "run", Steps: []*runlogv1.StepSnapshot{step("b", 3), step("c")}, PendingSignals: []*runlogv1.PendingSignal{{}}},
		{RunId: "run", Artifacts: []*runlogv1.ArtifactRef{{}, {}}},
	}
	page := func(token string) (*runlogv1.RunSnapshot, string) {
		i, _ := strconv.Atoi(token)
		if i == len(pages)-1 {
			return pages[i], ""
		}
		return pages[i], strconv.Itoa(i + 1)
	}
	fake := &fakeServer{
		getSnapshot: func(req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
			s, next := page(req.GetStepsPageToken())
			return &runlogv1.GetSnapshotResponse{Snapshot: s, NextStepsPageToken: next}, nil
		},
		watchRun: func(_ *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
			s, next := page("")
			return stream.Send(&runlogv1.WatchRunResponse{NextStepsPageToken: &next, Kind: &runlogv1.WatchRunResponse_Snapshot{Snapshot: s}})
		},
	}
	c := dialFake(t, fake, Options{})
	check := func(what string, s *runlogv1.RunSnapshot, token string, err error, want string) {
		t.Helper()
		var steps []string
		for _, step := range s.GetSteps() {
			steps = append(steps, fmt.Sprint(step.GetStepId(), len(step.GetAttempts())))
		}
		if got := fmt.Sprint(len(s.GetSignals())+len(s.GetPendingSignals()), steps, len(s.GetArtifacts()), token); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", what, got, err, want)
		}
	}
	res, err := c.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: "run"})
	check("GetSnapshot", res.GetSnapshot(), res.GetNextStepsPageToken(), err, "2 [a0 b3 c0] 2")
	res, err = c.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", StepsPageSize: 2})
	check("a page", res.GetSnapshot(), res.GetNextStepsPageToken(), err, "1 [a0 b2] 01")
	for m, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_SNAPSHOT}) {
		check("WatchRun", m.GetSnapshot(), m.GetNextStepsPageToken(), err, "2 [a0 b3 c0] 2")
		break
	}
}

// TestWholeDiffsTR7: DiffRun reads all pages of what differs. A request for a page gets one.
func TestWholeDiffsTR7(t *testing.T) {
	pages := []*runlogv1.DiffRunResponse{
		{Changed: []string{"status"}, Steps: []*runlogv1.StepDiff{{StepId: "a"}}, NextPageToken: "1"},
		{Changed: []string{"status"}, Steps: []*runlogv1.StepDiff{{StepId: "b"}}, Attempts: []*runlogv1.AttemptDiff{{}}, NextPageToken: "2"},
		{
			Changed: []string{"status"}, Artifacts: []*runlogv1.ArtifactRef{{}}, Signals: []*runlogv1.SignalDecision{{}},
			PendingSignals: []*runlogv1.PendingSignal{{}}, SettledSignals: []*runlogv1.PendingSignal{{}}, Inconsistencies: []*runlogv1.Inconsistency{{}},
		},
	}
	fake := &fakeServer{diffRun: func(req *runlogv1.DiffRunRequest) (*runlogv1.DiffRunResponse, error) {
		i, _ := strconv.Atoi(req.GetPageToken())
		return proto.CloneOf(pages[i]), nil
	}}
	c := dialFake(t, fake, Options{})
	req := &runlogv1.DiffRunRequest{RunId: "run"}
	for range 2 { // The request stays as it is.
		d, err := c.DiffRun(t.Context(), req)
		got := fmt.Sprint(d.GetChanged(), len(d.GetSteps()), len(d.GetAttempts()), len(d.GetArtifacts()), len(d.GetSignals()),
			len(d.GetPendingSignals()), len(d.GetSettledSignals()), len(d.GetInconsistencies()), d.GetNextPageToken())
		if want := "[status] 2 1 1 1 1 1 1"; err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if d, err := c.DiffRun(t.Context(), &runlogv1.DiffRunRequest{RunId: "run", PageSize: 1}); err != nil || len(d.GetSteps()) != 1 || d.GetNextPageToken() != "1" {
		t.Errorf("a page: %v, %v", d, err)
	}
}
