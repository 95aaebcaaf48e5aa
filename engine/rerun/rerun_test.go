package rerun_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/engine/rerun"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeLog has the events of the run that is rerun, or an error in their place.
type fakeLog struct {
	events []*runlogv1.EventRecord
	err    error
}

func (l fakeLog) ReadEvents(context.Context, *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for _, e := range l.events {
			if !yield(e, nil) {
				return
			}
		}
		if l.err != nil {
			yield(nil, l.err)
		}
	}
}

func record(seq uint64, eventType, step, payload string) *runlogv1.EventRecord {
	return &runlogv1.EventRecord{TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", EventType: eventType, StepId: &step, RunSeq: seq, LogicalAttemptId: 1, EngineAttemptId: 1,
		PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(payload)}}
}

// folded returns the state of a run with some events.
func folded(events ...*runlogv1.EventRecord) *replay.State {
	s := replay.New()
	for _, e := range events {
		s.Apply(e)
	}
	return s
}

// TestTakeOverSIG7: a run takes over the steps that have succeeded in the run that it reruns, once
// each, as long as none of its own steps has begun. The payload is that of the end there, to the
// byte but for where it is from. A run that can never take them over is refused, and says why. What
// may pass is no refusal. A run of another scope is not there (SEC-4).
func TestTakeOverSIG7(t *testing.T) {
	t.Parallel()
	p, _, err := plan.Parse([]byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[
		{"stepId":"a","type":"noop"},{"stepId":"b","type":"noop","dependsOn":["a"]},{"stepId":"c","type":"noop","dependsOn":["b"]}]}`), plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	past := fakeLog{events: []*runlogv1.EventRecord{
		record(1, contract.RunStarted, "", `{}`), record(2, contract.StepStarted, "a", `{}`), record(3, contract.StepCompleted, "a", `{"output":"<&>"}`),
		record(4, contract.StepCompleted, "b", `{"artifacts":[{"uri":"s3://elsewhere/b"}]}`), record(5, contract.StepFailed, "c", `{}`), record(6, contract.RunFailed, "", `{}`),
	}}
	queued, started := record(1, contract.RunQueued, "", `{"rerunOf":"past"}`), record(2, contract.RunStarted, "", `{}`)
	const a, b = `a {"output":"<&>","takenFrom":{"logicalAttemptId":1,"runId":"past","runSeq":3}}`,
		`b {"artifacts":[{"uri":"s3://elsewhere/b"}],"takenFrom":{"logicalAttemptId":1,"runId":"past","runSeq":4}}`
	away := errors.New("the connection has ended")
	own := &events.Run{Tenant: "acme", Project: "shop", Environment: "prod"}
	of := func(change func(*runlogv1.EventRecord)) (l fakeLog) {
		for _, e := range past.events {
			other := proto.CloneOf(e)
			change(other)
			l.events = append(l.events, other)
		}
		return l
	}
	for name, tt := range map[string]struct {
		log     fakeLog
		state   *replay.State
		add     error // of b
		want    []string
		refused string // is in the refusal
		err     error
	}{
		"all":                    {log: past, state: folded(queued, started), want: []string{a, b}},
		"no rerun":               {log: past, state: folded(record(1, contract.RunQueued, "", `{}`), started)},
		"killed":                 {log: past, state: folded(queued, started, record(3, contract.StepCompleted, "a", `{}`)), want: []string{b}},
		"begun":                  {log: past, state: folded(queued, started, record(3, contract.StepCompleted, "a", `{}`), record(4, contract.StepStarted, "b", `{}`))},
		"erased":                 {log: fakeLog{err: &client.Error{Reason: client.ReasonRunNotFound}}, state: folded(queued, started), refused: `"past"`},
		"of another tenant":      {log: of(func(e *runlogv1.EventRecord) { e.TenantId = "rival" }), state: folded(queued, started), refused: "not in the log"},
		"of another project":     {log: of(func(e *runlogv1.EventRecord) { e.ProjectId = "" }), state: folded(queued, started), refused: "not in the log"},
		"of another environment": {log: of(func(e *runlogv1.EventRecord) { e.EnvironmentId = "test" }), state: folded(queued, started), refused: "not in the log"},
		"log away":               {log: fakeLog{err: away}, state: folded(queued, started), err: away},
		"refused by log":         {log: past, state: folded(queued, started), add: &client.Error{Code: codes.InvalidArgument, Message: "a secret"}, want: []string{a, b}, refused: "a secret"},
		"append is retried":      {log: past, state: folded(queued, started), add: away, want: []string{a, b}, err: away},
	} {
		var got []string
		err := rerun.Source{Log: tt.log}.TakeOver(t.Context(), own, tt.state, p, func(stepID string, payload json.RawMessage) error {
			if got = append(got, fmt.Sprintf("%s %s", stepID, payload)); stepID == "b" {
				return tt.add
			}
			return nil
		})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q is taken over, want %q", name, got, tt.want)
		}
		never, refused := errors.AsType[*engine.PermanentError](err)
		if refused != (tt.refused != "") || refused && (never.Code != rerun.Code || !strings.Contains(never.Error(), tt.refused) || !strings.Contains(never.Error(), "request a run")) {
			t.Errorf("%s: the refusal is %v, want one with %q", name, err, tt.refused)
		}
		if !refused && !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", name, err, tt.err)
		}
	}
}
