package server_test

import (
	"context"
	"strings"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc/wire"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestAppendedBySEC8: a record contains the identity of the caller that appended it, and the id of
// its token, through every kind of append. A duplicate changes nothing, and an import keeps the
// identity from the other authority.
func TestAppendedBySEC8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		as := func(name string) context.Context {
			return auth.With(n.Context(), &auth.Identity{Name: name, TokenID: name + "'s", Tenants: auth.Tenants{All: true}, Roles: auth.AllRoles})
		}
		runs, events := n.Server.Services()[0].Impl().(runlogv1.RunServiceServer), n.Server.Services()[1].Impl().(runlogv1.EventServiceServer)

		_, err := runs.CreateRun(as("creator"), &runlogv1.CreateRunRequest{
			Run:    servertest.NewRun("run"),
			Events: servertest.Steps("c", 1),
		})
		if err != nil {
			t.Fatal(err)
		}
		appendAs := func(name, prefix string, count int) *runlogv1.AppendEventsResponse {
			resp, err := events.AppendEvents(as(name), &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps(prefix, count)})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		first := appendAs("worker \"é\"", "a", 2)
		batch, err := events.BatchAppend(as("batcher"), &runlogv1.BatchAppendRequest{
			Requests: []*runlogv1.AppendEventsRequest{{RunId: "run", Events: servertest.Steps("s", 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantResults(t, "batch", batch.Outcomes[0].Results, "n")
		n.Append("run", servertest.Steps("x", 1)...) // by a caller without an identity
		again := appendAs("another", "a", 2)
		servertest.WantResults(t, "duplicates", again.Results, "dd")
		servertest.SameStored(t, "duplicate", again.Results[1], first.Results[1])
		if again.Results[0].Diverged {
			t.Error("another identity counts as other content")
		}

		records := n.List("run")
		servertest.VerifyChain(t, records)
		for i, want := range []string{"creator", "worker \"é\"", "worker \"é\"", "batcher", ""} {
			r := records[i]
			if r.GetAppendedBy() != want || (r.AppendedBy == nil) != (want == "") || r.EmittedBy != nil {
				t.Errorf("runSeq %d is appended by %q, emitted by %q, want %q", r.RunSeq, r.GetAppendedBy(), r.GetEmittedBy(), want)
			}
			if r.AppendedBy != nil && r.GetAppendedByTokenId() != want+"'s" || r.AppendedBy == nil && r.AppendedByTokenId != nil {
				t.Errorf("runSeq %d is appended with token %v, want that of %q", r.RunSeq, r.AppendedByTokenId, want)
			}
		}
		verified, err := n.Audit.VerifyRun(n.Context(), &runlogv1.VerifyRunRequest{RunId: "run"})
		if err != nil || !verified.Ok || verified.Verified != 5 {
			t.Errorf("VerifyRun: %v, %v", verified, err)
		}
		if body := string(n.HTTP("GET", "/v1/runs/run/events", "").Body); !strings.Contains(body, `"appendedBy":"creator"`) {
			t.Errorf("over HTTP: %s", body)
		}
		// A producer does not name itself.
		n.HTTP("POST", "/v1/runs/run/events:append", `{"events":[`+strings.Replace(servertest.HTTPEvent("h"), "{", `{"appendedBy":"me",`, 1)+`]}`).
			Refused(t, contract.ReasonInvalidArgumentField)

		elsewhere := servertest.Start(t)
		var lines []string
		for _, r := range records {
			line, err := wire.NewJSON().Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(line))
		}
		elsewhere.Imports(lines...).OK(t)
		elsewhere.Imports(lines...).OK(t)
		for i, r := range elsewhere.List("run") {
			// The importer has appended it, which this node has not authenticated (APP-13).
			if r.AppendedBy != nil || r.AppendedByTokenId != nil || r.GetOriginal().GetSource() != records[i].GetAppendedBy() || r.RecordDigest == records[i].RecordDigest {
				t.Errorf("imported as %v, was %v", r, records[i])
			}
		}
		for _, claim := range []string{`"creator"`, `"creator's"`} {
			answer := elsewhere.Imports(strings.Replace(lines[0], claim, `"another"`, 1))
			if answer.Code != 400 || !strings.Contains(string(answer.Body), "recordDigest") {
				t.Errorf("a record with another %s: HTTP %d %s", claim, answer.Code, answer.Body)
			}
		}
	})
}
