package server_test

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
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestSecretsAreRefused: an append with what looks like a secret is refused by every way in, with
// the kind and the place of the secret. Neither the error nor the log has the secret, and the log
// has no part of the payload.
func TestSecretsAreRefused(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var log lockedBuffer
		n := servertest.Start(t, func(o *server.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		text := `{"request":{"headers":[{"x/y":"ok"},{"a~b/c":"` + servertest.FakeToken + `"}]}}`
		const place = "payload/request/headers/1/a~0b~1c"
		bad := func() *runlogv1.EventWrite {
			return servertest.NewEvent("Extra", servertest.Step("a"), servertest.Payload(text))
		}
		good := servertest.NewEvent("StepStarted", servertest.Step("a"))
		check := func(way, index string, err error) {
			t.Helper()
			r := servertest.Refused(t, err, contract.ReasonPayloadHasSecret)
			if r.Metadata["secret"] != "runlog-token" || !strings.Contains(err.Error(), index+place) {
				t.Errorf("%s: %v, %v", way, err, r.Metadata)
			}
			if strings.Contains(fmt.Sprint(err, r), servertest.FakeToken[4:]) {
				t.Errorf("%s: the error has the secret: %v", way, err)
			}
		}
		_, err := n.TryAppend("run-1", good, bad())
		check("unary", "events[1].", err)
		escaped := servertest.Payload(strings.Replace(text, servertest.FakeToken[:4], `\u0072lk\u005F`, 1))
		_, err = n.TryAppend("run-1", good, servertest.NewEvent("Extra", servertest.Step("a"), escaped))
		check("escaped", "events[1].", err)

		object, err := structpb.NewStruct(map[string]any{"request": map[string]any{"headers": []any{"", map[string]any{"a~b/c": servertest.FakeToken}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.TryAppend("run-1", servertest.NewEvent("Extra", servertest.Step("a"), func(e *runlogv1.EventWrite) { e.PayloadForm = &runlogv1.EventWrite_Payload{Payload: object} }))
		check("Struct", "events[0].", err)

		batch, err := n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{
			{RunId: "run-2", Events: []*runlogv1.EventWrite{bad()}}, {RunId: "run-3", Events: []*runlogv1.EventWrite{good}}}})
		if err != nil {
			t.Fatal(err)
		}
		if s := batch.Outcomes[0].Status; codes.Code(s.GetCode()) != codes.InvalidArgument || !strings.Contains(s.String(), place) || strings.Contains(s.String(), servertest.FakeToken[4:]) {
			t.Errorf("batch: %v", s)
		}
		if len(batch.Outcomes[1].Results) != 1 {
			t.Errorf("batch: %v", batch.Outcomes[1])
		}

		stream, err := n.Events.AppendStream(n.Context())
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
		if s := answer.String(); !strings.Contains(s, place) || !strings.Contains(s, string(contract.ReasonPayloadHasSecret)) || strings.Contains(s, servertest.FakeToken[4:]) {
			t.Errorf("stream: %s", s)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}

		_, err = n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{RunId: "run-4", TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"}},
			Events: []*runlogv1.EventWrite{servertest.NewEvent("RunStarted"), bad()}})
		check("CreateRun", "events[1].", err)

		event, err := json.Marshal(map[string]any{"eventType": "Extra", "stepId": "a", "tenantId": "tenant", "projectId": "project", "environmentId": "prod", "planId": "plan",
			"planVersion": "1", "logicalAttemptId": 1, "engineAttemptId": 1, "emittedAt": "2026-02-11T10:30:00Z", "payload": json.RawMessage(text)})
		if err != nil {
			t.Fatal(err)
		}
		got := n.HTTP(http.MethodPost, "/v1/runs/run-1/events:append", `{"events":[`+string(event)+`]}`)
		got.Refused(t, contract.ReasonPayloadHasSecret)
		if body := string(got.Body); !strings.Contains(body, place) || strings.Contains(body, servertest.FakeToken[4:]) {
			t.Errorf("HTTP: %s", body)
		}

		// The name of a member, and the extensions. A name that is a secret is not in the path.
		_, err = n.TryAppend("run-1", servertest.NewEvent("Extra", servertest.Step("a"), servertest.Payload(`{"a":{"`+servertest.FakeToken+`":1}}`)))
		if r := servertest.Refused(t, err, contract.ReasonPayloadHasSecret); !strings.Contains(err.Error(), "payload/a looks like") || strings.Contains(fmt.Sprint(err, r), servertest.FakeToken[4:]) {
			t.Errorf("a name: %v", err)
		}
		_, err = n.TryAppend("run-1", servertest.NewEvent("Extra", servertest.Step("a"), servertest.Payload(`{"\u0072lk_`+servertest.FakeToken[4:]+`":{"b":"`+servertest.FakeToken+`"}}`)))
		if r := servertest.Refused(t, err, contract.ReasonPayloadHasSecret); strings.Contains(fmt.Sprint(err, r), servertest.FakeToken[4:]) {
			t.Errorf("an escaped name: %v", err)
		}
		_, err = n.TryAppend("run-1", servertest.NewEvent("Extra", servertest.Step("a"), func(e *runlogv1.EventWrite) { e.ExtensionsJson = []byte(`{"x":"` + servertest.FakeToken + `"}`) }))
		if servertest.Refused(t, err, contract.ReasonPayloadHasSecret); !strings.Contains(err.Error(), "extensions/x") {
			t.Errorf("extensions: %v", err)
		}

		if count := n.Metric("runlog_append_secrets_total"); count != 10 {
			t.Errorf("%v secrets are counted, want 10", count)
		}
		if s := log.String(); strings.Contains(s, servertest.FakeToken[4:]) || strings.Contains(s, "headers") || !strings.Contains(s, "kind=runlog-token result=refused") {
			t.Errorf("the log:\n%s", s)
		}
	})
}

// TestSecretScanModes: report stores and counts, off only stores. An import is history and keeps
// what it has.
func TestSecretScanModes(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		event := servertest.NewEvent("Extra", servertest.Step("a"), servertest.Payload(`{"a":"`+servertest.FakeToken+`"}`))
		for mode, counted := range map[string]float64{server.SecretReport: 1, server.SecretOff: 0} {
			n := servertest.Start(t, func(o *server.Options) { o.SecretScan = mode })
			n.Append("run-1", event)
			if count := n.Metric("runlog_append_secrets_total"); count != counted {
				t.Errorf("%s: %v secrets are counted, want %v", mode, count, counted)
			}
		}
		n := servertest.Start(t)
		lines := servertest.WithGaps("old")
		lines[0] = servertest.Foreign("old", 1, 1, "Extra", `,"payload":{"a":"`+servertest.FakeToken+`"}`)
		if got := n.Imports(lines...); got.Code != http.StatusOK {
			t.Errorf("import: %d %s", got.Code, got.Body)
		}
		if count := n.Metric("runlog_append_secrets_total"); count != 0 {
			t.Errorf("%v secrets of an import are counted", count)
		}
		o := servertest.Options(t)
		o.SecretScan = "sometimes"
		if _, err := server.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "SecretScan") {
			t.Errorf("an unknown mode: %v", err)
		}
	})
}

// TestAccessLogKeepsSecrets: what a denied caller sent is in the access log, whatever it looks like
// (SEC-7).
func TestAccessLogKeepsSecrets(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		if n.Server.Rules("runlog.access/2026-02-11").Secret != nil || n.Server.Rules("run-1").Secret == nil {
			t.Error("the scan is not of all runs but those of the access log")
		}
	})
}
