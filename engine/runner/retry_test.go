package runner_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine/executor"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// script executes steps as a test says.
type script func(ctx context.Context, task executor.Task) error

func (s script) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	return executor.Result{Output: fmt.Appendf(nil, `{"of":%q}`, task.StepID)}, s(ctx, task)
}

// scripted returns the options of a runner that executes a script.
func (b *bed) scripted(t testing.TB, c *client.Client, s script) runner.Options {
	t.Helper()
	o := b.options(t, c)
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"script": s})
	if err != nil {
		t.Fatal(err)
	}
	o.Executors, o.DefaultExecutor = registry, "script"
	return o
}

// play starts a runner that executes a script.
func (b *bed) play(t testing.TB, s script) *process {
	t.Helper()
	return b.run(t, b.scripted(t, b.srv.Client(client.Options{MinBackoff: 5 * time.Millisecond}), s))
}

// request begins a run of a manifest, and does not wait for it.
func (p *process) request(steps string) string {
	p.t.Helper()
	m := p.manifest(steps)
	go func() { _, _, _ = p.try("POST", "/api/runs", `{"manifest_id":"`+m+`","initiated_by":"jed"}`) }()
	return p.running(m)
}

// signal sends a signal to a step, which must be accepted.
func (p *process) signal(runID, signalType, step string) {
	p.t.Helper()
	res, err := p.c.SendSignal(p.t.Context(), &runlogv1.SendSignalRequest{RunId: runID, SignalId: signalType + step, SignalType: signalType, StepId: step})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		p.t.Fatal(signalType, step, res, err)
	}
}

// story returns the events of a run, each with its step, its attempts and its signal.
func (b *bed) story(t testing.TB, runID string) (list []string) {
	t.Helper()
	for e, err := range b.c.ReadEvents(context.Background(), &runlogv1.ReadEventsRequest{RunId: runID}) {
		if err != nil {
			t.Fatal(err)
		}
		text := e.GetEventType()
		if strings.HasPrefix(text, "Signal") {
			continue
		}
		if e.GetStepId() != "" {
			text += fmt.Sprintf(" %s %d.%d", e.GetStepId(), e.GetLogicalAttemptId(), e.GetEngineAttemptId())
		}
		if e.GetCausedBySignalId() != "" && strings.HasPrefix(text, "Step") {
			text += " by " + e.GetCausedBySignalId()
		}
		list = append(list, text)
	}
	return list
}

// tells compares the events of a run, but for those of signals, and fails if the snapshot has an
// inconsistency.
func (b *bed) tells(t testing.TB, runID string, want ...string) {
	t.Helper()
	if got := b.story(t, runID); !slices.Equal(got, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b.clean(t, runID)
}

// clean fails if the snapshot of a run has an inconsistency.
func (b *bed) clean(t testing.TB, runID string) {
	t.Helper()
	res, err := b.c.GetSnapshot(context.Background(), &runlogv1.GetSnapshotRequest{RunId: runID})
	if err != nil || len(res.GetSnapshot().GetInconsistencies()) > 0 {
		t.Errorf("%v: inconsistencies %v", err, res.GetSnapshot().GetInconsistencies())
	}
}

// happens waits for an event of a run.
func (b *bed) happens(t testing.TB, runID, event string) {
	t.Helper()
	bubble.Until(t, event, func() bool { return slices.Contains(b.story(t, runID), event) })
}

// holding is a script in which A fails for good in its first logical attempt, and once for another
// try in its second, and hold ends when the test lets it.
func holding(let <-chan struct{}) script {
	return func(ctx context.Context, task executor.Task) error {
		switch {
		case task.StepID == "hold":
			select {
			case <-let:
			case <-ctx.Done():
				return ctx.Err()
			}
		case task.StepID == "A" && task.LogicalAttempt == 1:
			return executor.Fail("BROKEN", "by hand")
		case task.StepID == "A" && task.EngineAttempt == 1:
			return executor.Retry("BUSY", "not yet")
		}
		return nil
	}
}

// TestRetryStepSIG7: a RETRY_STEP while another step is executed begins the next logical attempt of
// its step, in which engine attempts begin at 1. What was skipped because of the failure runs, what
// has succeeded does not, and a step that was skipped for another reason stays so.
func TestRetryStepSIG7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryStepSIG7)
}

func testRetryStepSIG7(t *testing.T) {
	b, let := newBed(t), make(chan struct{})
	p := b.play(t, holding(let))
	id := p.request(`{"step_key":"first"},{"step_key":"A"},{"step_key":"B","depends_on":["A"]},{"step_key":"C","depends_on":["B","skipped"]},` +
		`{"step_key":"D","depends_on":["B"]},{"step_key":"hold"},{"step_key":"skipped","depends_on":["hold"]}`)
	b.happens(t, id, "StepStarted hold 1.1")
	p.signal(id, "SKIP_STEP", "skipped")
	p.signal(id, "RETRY_STEP", "A")
	res, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: "twice", SignalType: "RETRY_STEP", StepId: "A"})
	if err != nil || res.GetRejectReason() != "ALREADY_RETRIED" {
		t.Error(res, err)
	}
	close(let)
	p.until(id, "success")
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted first 1.1", "StepCompleted first 1.1", "StepStarted A 1.1", "StepFailed A 1.1",
		"StepSkipped B 1.1", "StepSkipped D 1.1", "StepStarted hold 1.1", "StepCompleted hold 1.1", "StepSkipped skipped 1.1 by SKIP_STEPskipped",
		"StepStarted A 2.1 by RETRY_STEPA", "StepRetrying A 2.1", "StepCompleted A 2.2", "StepStarted B 2.1", "StepCompleted B 2.1", "StepSkipped C 1.1",
		"StepStarted D 2.1", "StepCompleted D 2.1", "RunCompleted")
	if _, steps, _ := p.steps(id); !slices.Contains(steps, "A=SUCCESS") || !slices.Contains(steps, "C=SKIPPED") || len(steps) != 7 {
		t.Errorf("steps %v", steps)
	}
}

// TestSkipStepSIG3: a SKIP_STEP ends the step that is executed, and skips one whose turn has not
// come. What depends on it is skipped, unless its condition says otherwise, and the run goes on. A
// step that the plan does not have is ignored.
func TestSkipStepSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSkipStepSIG3)
}

func testSkipStepSIG3(t *testing.T) {
	b := newBed(t)
	p := b.play(t, func(ctx context.Context, task executor.Task) error {
		if task.StepID == "hang" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	id := p.request(`{"step_key":"hang"},{"step_key":"B","depends_on":["hang"]},{"step_key":"C"},{"step_key":"D","depends_on":["C"]},{"step_key":"E"}`)
	p.signal(id, "SKIP_STEP", "elsewhere")
	p.signal(id, "SKIP_STEP", "C")
	p.signal(id, "SKIP_STEP", "hang")
	p.until(id, "success")
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted hang 1.1", "StepSkipped hang 2.1 by SKIP_STEPhang", "StepSkipped C 1.1 by SKIP_STEPC",
		"StepSkipped B 1.1", "StepSkipped D 1.1", "StepStarted E 1.1", "StepCompleted E 1.1", "RunCompleted")
}

// TestSkipOfWaitingStepATT2: a SKIP_STEP ends the wait for an attestation, as the attestation
// would, and does not resume the run. The step run that was skipped cannot be attested any more.
func TestSkipOfWaitingStepATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSkipOfWaitingStepATT2)
}

func testSkipOfWaitingStepATT2(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(acceptance + `,{"step_key":"D"}`))
	_, _, stepRuns := p.steps(id)
	p.signal(id, "RESUME", "") // It comes before the step is skipped, and resumes nothing.
	p.signal(id, "SKIP_STEP", "B")
	b.happens(t, id, "StepSkipped B 2.1 by SKIP_STEPB")
	if is, steps, _ := p.steps(id); is != "waiting" || !slices.Equal(steps, []string{"A=SUCCESS", "B=SKIPPED"}) {
		t.Errorf("the run is %s: %v", is, steps)
	}
	if status, answer := p.call("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB); status != http.StatusConflict {
		t.Errorf("an attestation: %d %v", status, answer)
	}
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" {
		t.Errorf("resumed: %v", got)
	}
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepCompleted A 1.1", "StepWaitingForAttestation B 1.1",
		"StepSkipped B 2.1 by SKIP_STEPB", "RunResumed", "StepSkipped C 1.1", "StepStarted D 1.1", "StepCompleted D 1.1", "RunCompleted")
}

// TestRetryWhileWaitingATT2: while a step waits for its attestation, nothing else is executed, also
// no step that is to be retried. It is once the run is resumed.
func TestRetryWhileWaitingATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryWhileWaitingATT2)
}

func testRetryWhileWaitingATT2(t *testing.T) {
	b := newBed(t)
	p := b.play(t, holding(nil))
	id, status := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"B","step_type":"compute",` + contractB + `},{"step_key":"C","depends_on":["A","B"]}`))
	_, _, stepRuns := p.steps(id)
	p.signal(id, "RETRY_STEP", "A")
	attest := "/api/runs/" + id + "/steps/" + stepRuns["B"] + "/attest"
	p.ok("POST", attest, attestB)
	if is, steps, _ := p.steps(id); status != "waiting" || is != "waiting" || !slices.Equal(steps, []string{"A=FAIL", "B=SUCCESS"}) {
		t.Errorf("the run is %s, then %s: %v", status, is, steps)
	}
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" {
		t.Errorf("resumed: %v", got)
	}
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepFailed A 1.1", "StepWaitingForAttestation B 1.1", "StepAttested B 1.1", "RunResumed",
		"StepStarted A 2.1 by RETRY_STEPA", "StepRetrying A 2.1", "StepCompleted A 2.2", "StepStarted C 1.1", "StepCompleted C 1.1", "RunCompleted")
}

// TestRetryOfAttestedFailureATT6: a step whose attestation says FAIL, and whose run goes on, is
// waited for again by a RETRY_STEP. That is another step run.
func TestRetryOfAttestedFailureATT6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryOfAttestedFailureATT6)
}

func testRetryOfAttestedFailureATT6(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	id, _ := p.begin(m)
	_, _, first := p.steps(id)
	// another writer, which does not end the run
	b.append(t, id, m, func(r events.Run) (*runlogv1.EventWrite, error) {
		return r.StepAttested("B", events.Attempt{Logical: 1, Engine: 1}, map[string]any{"outcome": "FAIL", "attestedBy": "ann"})
	})
	p.signal(id, "RETRY_STEP", "B")
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "waiting" {
		t.Errorf("resumed: %v", got)
	}
	_, steps, second := p.steps(id)
	if first["B"] == second["B"] || !slices.Equal(steps, []string{"A=SUCCESS", "B=WAITING_FOR_ATTESTATION"}) {
		t.Errorf("steps %v with the step run %s, before %s", steps, second["B"], first["B"])
	}
	if status, answer := p.call("POST", "/api/runs/"+id+"/steps/"+first["B"]+"/attest", attestB); status != http.StatusConflict {
		t.Errorf("an attestation of the first step run: %d %v", status, answer)
	}
	p.ok("POST", "/api/runs/"+id+"/steps/"+second["B"]+"/attest", attestB)
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" {
		t.Errorf("resumed: %v", got)
	}
	b.clean(t, id)
}

// TestSignalsInPauseSIG3: signals to steps of a paused run have their effect after the RESUME.
func TestSignalsInPauseSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSignalsInPauseSIG3)
}

func testSignalsInPauseSIG3(t *testing.T) {
	b, let := newBed(t), make(chan struct{})
	p := b.play(t, holding(let))
	id := p.request(`{"step_key":"A"},{"step_key":"B","depends_on":["A"]},{"step_key":"hold"},{"step_key":"C"}`)
	b.happens(t, id, "StepStarted hold 1.1")
	p.signal(id, "PAUSE", "")
	close(let)
	b.happens(t, id, "RunPaused")
	p.signal(id, "RETRY_STEP", "A")
	p.signal(id, "SKIP_STEP", "C")
	before := b.story(t, id)
	// The runner has heard of the signals, and executes another run.
	other, _ := p.begin(p.manifest(`{"step_key":"B"}`))
	if got := b.story(t, id); !slices.Equal(got, before) {
		t.Errorf("in the pause: %q", got[len(before):])
	}
	p.signal(id, "RESUME", "")
	p.until(id, "success")
	b.clean(t, other)
	b.tells(t, id, append(before, "StepSkipped C 1.1 by SKIP_STEPC", "RunResumed", "StepStarted A 2.1 by RETRY_STEPA", "StepRetrying A 2.1", "StepCompleted A 2.2",
		"StepStarted B 2.1", "StepCompleted B 2.1", "RunCompleted")...)
}

// TestRetryAfterEndSIG3: a run that has ended takes no RETRY_STEP, and the engine follows none that
// another writer has put into its log.
func TestRetryAfterEndSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryAfterEndSIG3)
}

func testRetryAfterEndSIG3(t *testing.T) {
	b := newBed(t)
	p := b.play(t, holding(nil))
	m := p.manifest(`{"step_key":"A"}`)
	id, status := p.begin(m)
	for _, signalType := range []string{"RETRY_STEP", "SKIP_STEP"} {
		res, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: signalType, SignalType: signalType, StepId: "A"})
		if err != nil || status != "error" || res.GetRejectReason() != "RUN_ENDED" {
			t.Error(status, res, err)
		}
	}
	before := b.story(t, id)
	b.append(t, id, m, func(r events.Run) (*runlogv1.EventWrite, error) {
		return r.SignalAccepted("A", events.Cause{SignalID: "late", Engine: 1}, map[string]any{"signalId": "late", "signalType": "RETRY_STEP", "decidedBy": "other"})
	})
	if status, answer := p.call("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); status != http.StatusConflict {
		t.Errorf("a resume: %d %v", status, answer)
	}
	// The runner has heard of the signal, and executes another run.
	p.begin(p.manifest(`{"step_key":"B"}`))
	b.tells(t, id, before...)
}

// TestRetryBeforeEndSIG2: a RETRY_STEP that comes just before the end of its run is followed: the
// run does not end with a failure that is retried.
func TestRetryBeforeEndSIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryBeforeEndSIG2)
}

func testRetryBeforeEndSIG2(t *testing.T) {
	b := newBed(t)
	c, sent := b.srv.Client(client.Options{}), false
	p := b.run(t, b.scripted(t, b.srv.Client(between("AppendEvents", func(ctx context.Context, req any) {
		if write := req.(*runlogv1.AppendEventsRequest); write.GetEvents()[0].GetEventType() == "RunFailed" && !sent {
			sent = true
			res, err := c.SendSignal(ctx, &runlogv1.SendSignalRequest{RunId: write.GetRunId(), SignalId: "s", SignalType: "RETRY_STEP", StepId: "A"})
			if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
				t.Error(res, err)
			}
		}
	})), holding(nil)))
	id, status := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"B","depends_on":["A"]}`))
	if status != "success" {
		t.Errorf("the run is %s", status)
	}
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepFailed A 1.1", "StepSkipped B 1.1", "StepStarted A 2.1 by s", "StepRetrying A 2.1", "StepCompleted A 2.2",
		"StepStarted B 2.1", "StepCompleted B 2.1", "RunCompleted")
}

// TestRetryingIDM11: each try that the runner repeats is told, with its error and the time of the
// next one. A worker that takes over keeps to that time, and counts on. A text that the log refuses
// is left out.
func TestRetryingIDM11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryingIDM11)
}

func testRetryingIDM11(t *testing.T) {
	b := newBed(t)
	b.ttl = 10 * time.Second
	begun := time.Now()
	var third time.Duration
	tries := func(_ context.Context, task executor.Task) error {
		switch task.EngineAttempt {
		case 1:
			return executor.Retry("BUSY", "the server says ghp_%s", strings.Repeat("a", 36))
		case 2:
			e := executor.Retry("BUSY", "not yet")
			e.RetryAfter = time.Minute
			return e
		}
		third = time.Since(begun)
		return nil
	}
	p := b.play(t, tries)
	id := p.request(`{"step_key":"A"}`)
	b.happens(t, id, "StepRetrying A 1.2")
	p.kill()
	next := b.play(t, tries)
	next.until(id, "success")
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepRetrying A 1.1", "StepRetrying A 1.2", "StepCompleted A 1.3", "RunCompleted")
	if third < time.Minute {
		t.Errorf("the third try begins after %s, want a minute", third)
	}
	for e, err := range b.c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: id, PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			t.Fatal(err)
		}
		payload, told := string(e.GetPayloadJson()), e.GetEngineAttemptId() == 2
		if e.GetEventType() == "StepRetrying" && (!strings.Contains(payload, `"nextAttemptAt"`) || strings.Contains(payload, "not yet") != told) {
			t.Errorf("attempt %d: %s", e.GetEngineAttemptId(), payload)
		}
	}
}
