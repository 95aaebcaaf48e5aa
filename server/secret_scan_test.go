package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// fakeToken looks like a token of runlog and is none.
const fakeToken = "rl" + "k_" + "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0eF2hJ4lM6oP8r"

// TestSecretsAreRefused: an append with what looks like a secret is refused by every way in, with
// the kind and the place of the secret. Neither the error nor the log has the secret, and the log
// has no part of the payload.
func TestSecretsAreRefused(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var log lockedBuffer
		n := startNode(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		text := `{"request":{"headers":[{"x/y":"ok"},{"a~b/c":"` + fakeToken + `"}]}}`
		const place = "payload/request/headers/1/a~0b~1c"
		bad := func() *runlogv1.EventWrite { return newEvent("Extra", step("a"), payload(text)) }
		good := newEvent("StepStarted", step("a"))
		check := func(way, index string, err error) {
			t.Helper()
			r := refused(t, err, contract.ReasonPayloadHasSecret)
			if r.metadata["secret"] != "runlog-token" || !strings.Contains(err.Error(), index+place) {
				t.Errorf("%s: %v, %v", way, err, r.metadata)
			}
			if strings.Contains(fmt.Sprint(err, r), fakeToken[4:]) {
				t.Errorf("%s: the error has the secret: %v", way, err)
			}
		}
		_, err := n.tryAppend("run-1", good, bad())
		check("unary", "events[1].", err)
		escaped := payload(strings.Replace(text, fakeToken[:4], `\u0072lk\u005F`, 1))
		_, err = n.tryAppend("run-1", good, newEvent("Extra", step("a"), escaped))
		check("escaped", "events[1].", err)

		object, err := structpb.NewStruct(map[string]any{"request": map[string]any{"headers": []any{"", map[string]any{"a~b/c": fakeToken}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.tryAppend("run-1", newEvent("Extra", step("a"), func(e *runlogv1.EventWrite) { e.PayloadForm = &runlogv1.EventWrite_Payload{Payload: object} }))
		check("Struct", "events[0].", err)

		batch, err := n.events.BatchAppend(n.context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{
			{RunId: "run-2", Events: []*runlogv1.EventWrite{bad()}}, {RunId: "run-3", Events: []*runlogv1.EventWrite{good}}}})
		if err != nil {
			t.Fatal(err)
		}
		if s := batch.Outcomes[0].Status; codes.Code(s.GetCode()) != codes.InvalidArgument || !strings.Contains(s.String(), place) || strings.Contains(s.String(), fakeToken[4:]) {
			t.Errorf("batch: %v", s)
		}
		if len(batch.Outcomes[1].Results) != 1 {
			t.Errorf("batch: %v", batch.Outcomes[1])
		}

		stream, err := n.events.AppendStream(n.context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run-2", Events: []*runlogv1.EventWrite{bad()}}); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if s := answer.String(); !strings.Contains(s, place) || !strings.Contains(s, string(contract.ReasonPayloadHasSecret)) || strings.Contains(s, fakeToken[4:]) {
			t.Errorf("stream: %s", s)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}

		_, err = n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{RunId: "run-4", TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"}},
			Events: []*runlogv1.EventWrite{newEvent("RunStarted"), bad()}})
		check("CreateRun", "events[1].", err)

		event, err := json.Marshal(map[string]any{"eventType": "Extra", "stepId": "a", "tenantId": "tenant", "projectId": "project", "environmentId": "prod", "planId": "plan",
			"planVersion": "1", "logicalAttemptId": 1, "engineAttemptId": 1, "emittedAt": "2026-02-11T10:30:00Z", "payload": json.RawMessage(text)})
		if err != nil {
			t.Fatal(err)
		}
		got := n.http(http.MethodPost, "/v1/runs/run-1/events:append", `{"events":[`+string(event)+`]}`)
		got.refused(t, contract.ReasonPayloadHasSecret)
		if body := string(got.body); !strings.Contains(body, place) || strings.Contains(body, fakeToken[4:]) {
			t.Errorf("HTTP: %s", body)
		}

		// The name of a member, and the extensions. A name that is a secret is not in the path.
		_, err = n.tryAppend("run-1", newEvent("Extra", step("a"), payload(`{"a":{"`+fakeToken+`":1}}`)))
		if r := refused(t, err, contract.ReasonPayloadHasSecret); !strings.Contains(err.Error(), "payload/a looks like") || strings.Contains(fmt.Sprint(err, r), fakeToken[4:]) {
			t.Errorf("a name: %v", err)
		}
		_, err = n.tryAppend("run-1", newEvent("Extra", step("a"), payload(`{"\u0072lk_`+fakeToken[4:]+`":{"b":"`+fakeToken+`"}}`)))
		if r := refused(t, err, contract.ReasonPayloadHasSecret); strings.Contains(fmt.Sprint(err, r), fakeToken[4:]) {
			t.Errorf("an escaped name: %v", err)
		}
		_, err = n.tryAppend("run-1", newEvent("Extra", step("a"), func(e *runlogv1.EventWrite) { e.ExtensionsJson = []byte(`{"x":"` + fakeToken + `"}`) }))
		if refused(t, err, contract.ReasonPayloadHasSecret); !strings.Contains(err.Error(), "extensions/x") {
			t.Errorf("extensions: %v", err)
		}

		if count := n.metric("runlog_append_secrets_total"); count != 10 {
			t.Errorf("%v secrets are counted, want 10", count)
		}
		if s := log.String(); strings.Contains(s, fakeToken[4:]) || strings.Contains(s, "headers") || !strings.Contains(s, "kind=runlog-token result=refused") {
			t.Errorf("the log:\n%s", s)
		}
	})
}

// TestSecretScanModes: report stores and counts, off only stores. An import is history and keeps
// what it has.
func TestSecretScanModes(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		event := newEvent("Extra", step("a"), payload(`{"a":"`+fakeToken+`"}`))
		for mode, counted := range map[string]float64{SecretReport: 1, SecretOff: 0} {
			n := startNode(t, func(o *Options) { o.SecretScan = mode })
			n.append("run-1", event)
			if count := n.metric("runlog_append_secrets_total"); count != counted {
				t.Errorf("%s: %v secrets are counted, want %v", mode, count, counted)
			}
		}
		n := startNode(t)
		lines := withGaps("old")
		lines[0] = foreign("old", 1, 1, "Extra", `,"payload":{"a":"`+fakeToken+`"}`)
		if got := n.imports(lines...); got.code != http.StatusOK {
			t.Errorf("import: %d %s", got.code, got.body)
		}
		if count := n.metric("runlog_append_secrets_total"); count != 0 {
			t.Errorf("%v secrets of an import are counted", count)
		}
		o := testOptions(t)
		o.SecretScan = "sometimes"
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "SecretScan") {
			t.Errorf("an unknown mode: %v", err)
		}
	})
}

// TestAccessLogKeepsSecrets: what a denied caller sent is in the access log, whatever it looks like
// (SEC-7).
func TestAccessLogKeepsSecrets(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		if n.server.rules("runlog.access/2026-02-11").Secret != nil || n.server.rules("run-1").Secret == nil {
			t.Error("the scan is not of all runs but those of the access log")
		}
	})
}
