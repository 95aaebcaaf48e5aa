package server

import (
	"context"
	"strings"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc/wire"
	"runlog/testbed/bubble"
)

// TestAppendedBySEC8: a record contains the identity of the caller that appended it, through every
// kind of append. A duplicate changes nothing, and an import keeps the identity from the other
// authority.
func TestAppendedBySEC8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		as := func(name string) context.Context {
			return auth.With(n.context(), &auth.Identity{Name: name, Tenants: auth.Tenants{All: true}, Roles: auth.AllRoles})
		}
		runs, events := n.server.services[0].Impl().(runlogv1.RunServiceServer), n.server.services[1].Impl().(runlogv1.EventServiceServer)

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
		batch, err := events.BatchAppend(as("batcher"), &runlogv1.BatchAppendRequest{
			Requests: []*runlogv1.AppendEventsRequest{{RunId: "run", Events: steps("s", 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		wantResults(t, "batch", batch.Outcomes[0].Results, "n")
		n.append("run", steps("x", 1)...) // by a caller without an identity
		again := appendAs("another", "a", 2)
		wantResults(t, "duplicates", again.Results, "dd")
		sameStored(t, "duplicate", again.Results[1], first.Results[1])
		if again.Results[0].Diverged {
			t.Error("another identity counts as other content")
		}

		records := n.list("run")
		verifyChain(t, records)
		for i, want := range []string{"creator", "worker \"é\"", "worker \"é\"", "batcher", ""} {
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
		// A producer does not name itself.
		n.http("POST", "/v1/runs/run/events:append", `{"events":[`+strings.Replace(httpEvent("h"), "{", `{"appendedBy":"me",`, 1)+`]}`).
			refused(t, contract.ReasonInvalidArgumentField)

		elsewhere := startNode(t)
		var lines []string
		for _, r := range records {
			line, err := wire.NewJSON().Marshal(r)
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
		forged := strings.Replace(lines[0], `"creator"`, `"another"`, 1)
		answer := elsewhere.imports(forged)
		if answer.code != 400 || !strings.Contains(string(answer.body), "recordDigest") {
			t.Errorf("a record with another identity: HTTP %d %s", answer.code, answer.body)
		}
	})
}
