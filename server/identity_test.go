package server

import (
	"context"
	"strings"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestAppendedBySEC8: a record keeps the identity of the caller that appended it, on every way in;
// a duplicate changes nothing, and an import keeps what the other authority had recorded.
func TestAppendedBySEC8(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	as := func(name string) context.Context { return context.WithValue(n.context(), identityKey{}, name) }
	events, runs := &eventService{s: n.server}, &runService{s: n.server}

	_, err := runs.CreateRun(as("creator"), &runlogv1.CreateRunRequest{
		Run:    newRun("run"),
		Events: steps("c", 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	appendAs := func(name, prefix string, count int) *runlogv1.AppendEventsResponse {
		resp, err := events.AppendEvents(as(name), &runlogv1.AppendEventsRequest{RunId: "run", Events: steps(prefix, count)})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	first := appendAs("worker \"é\"", "a", 2)
	streamed := events.answer(as("streamer"), events.admit(as("streamer"), &runlogv1.AppendEventsRequest{RunId: "run", Events: steps("s", 1)}))
	wantResults(t, "stream", streamed.Results, "n")
	n.append("run", steps("x", 1)...) // by a caller without an identity
	again := appendAs("another", "a", 2)
	wantResults(t, "duplicates", again.Results, "dd")
	sameStored(t, "duplicate", again.Results[1], first.Results[1])
	if again.Results[0].Diverged {
		t.Error("another identity counts as other content")
	}

	records := n.list("run")
	verifyChain(t, records)
	for i, want := range []string{"creator", "worker \"é\"", "worker \"é\"", "streamer", ""} {
		r := records[i]
		if r.GetAppendedBy() != want || (r.AppendedBy == nil) != (want == "") || r.EmittedBy != nil {
			t.Errorf("runSeq %d is appended by %q, emitted by %q, want %q", r.RunSeq, r.GetAppendedBy(), r.GetEmittedBy(), want)
		}
	}
	verified, err := n.audit.VerifyRun(n.context(), &runlogv1.VerifyRunRequest{RunId: "run"})
	if err != nil || !verified.Ok || verified.Verified != 5 {
		t.Errorf("VerifyRun: %v, %v", verified, err)
	}
	if body := string(n.http("GET", "/v1/runs/run/events", "").body); !strings.Contains(body, `"appendedBy":"creator"`) {
		t.Errorf("over HTTP: %s", body)
	}
	// No producer says who it is.
	n.http("POST", "/v1/runs/run/events:append", `{"events":[`+strings.Replace(httpEvent("h"), "{", `{"appendedBy":"me",`, 1)+`]}`).
		refused(t, contract.ReasonInvalidArgumentField)

	elsewhere := startNode(t)
	var lines []string
	for _, r := range records {
		line, err := newJSONMarshaler().Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	elsewhere.imports(lines...).ok(t)
	elsewhere.imports(lines...).ok(t)
	for i, r := range elsewhere.list("run") {
		if r.GetAppendedBy() != records[i].GetAppendedBy() || r.RecordDigest != records[i].RecordDigest || r.ChainDigest != records[i].ChainDigest {
			t.Errorf("imported as %v, was %v", r, records[i])
		}
	}
	forged := strings.Replace(lines[0], `"creator"`, `"somebody"`, 1)
	answer := elsewhere.imports(forged)
	if answer.code != 400 || !strings.Contains(string(answer.body), "recordDigest") {
		t.Errorf("a record with another identity: HTTP %d %s", answer.code, answer.body)
	}
}
