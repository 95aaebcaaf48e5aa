package runner_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// said returns a body of the specification of compute steps, byte for byte as it stands there.
func said(t testing.TB, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "document", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// decoded returns the value of a JSON text.
func decoded(t testing.TB, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// names returns the members of an object, in their order.
func names(object any) (list []string) {
	members, _ := object.(map[string]any)
	for name := range members {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// sectionNine is the manifest of section 9. What its columns may be, step_type and compute_contract
// of C are: null.
func sectionNine(t testing.TB) string {
	t.Helper()
	return `{"step_key":"A","step_type":"task"},
		{"step_key":"B","step_type":"compute","depends_on":["A"],"compute_contract":` + said(t, "compute_contract.json") + `},
		{"step_key":"C","step_type":null,"depends_on":["B"],"compute_contract":null}`
}

// attestation is the body of section 7.1 with a digest in place of its dots.
func attestation(t testing.TB) string {
	t.Helper()
	return strings.Replace(said(t, "attest.json"), "...", strings.Repeat("0a", 32), 1)
}

// paths returns where a refused body has its faults.
func paths(answer map[string]any) (list []string) {
	faults, _ := answer["faults"].([]any)
	for _, f := range faults {
		list = append(list, fmt.Sprint(f.(map[string]any)["path"]))
	}
	return list
}

// TestAcceptanceATT3 is section 9 of the specification of compute steps, over HTTP and with the
// bodies of that document: a run halts at a compute step, is attested, and goes on with a resume.
// Resuming twice repeats nothing (ATT-1 to ATT-5). The answers have the names of the document.
func TestAcceptanceATT3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testAcceptanceATT3)
}

func testAcceptanceATT3(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(sectionNine(t))
	if again := p.manifest(sectionNine(t)); again != m {
		t.Errorf("the same manifest has the ids %s and %s", m, again)
	}
	contract := decoded(t, said(t, "compute_contract.json"))
	manifest := p.ok("GET", "/api/manifests/"+m, "")
	if steps := manifest["steps"].([]any); manifest["id"] != m || manifest["name"] != "m" || len(steps) != 3 ||
		!reflect.DeepEqual(steps[1].(map[string]any)["compute_contract"], contract) {
		t.Errorf("manifest %v", manifest)
	}

	// Run manifest: A executes and succeeds, B waits, the run waits, and C does not execute.
	began := time.Now()
	id, _ := p.begin(m)
	run := p.ok("GET", "/api/runs/"+id, "")
	steps := run["steps"].([]any)
	if run["status"] != "waiting" || run["initiated_by"] != "jed" || run["ended_at"] != nil || !isNow(run["started_at"], began) || len(steps) != 2 {
		t.Fatalf("the run: %v", run)
	}
	a, waits := steps[0].(map[string]any), steps[1].(map[string]any)
	if a["step_key"] != "A" || a["step_type"] != "task" || a["status"] != "SUCCESS" || a["ended_at"] == nil {
		t.Errorf("A: %v", a)
	}
	if waits["step_key"] != "B" || waits["step_type"] != "compute" || waits["status"] != "WAITING_FOR_ATTESTATION" ||
		!isNow(waits["started_at"], began) || waits["ended_at"] != nil || !reflect.DeepEqual(waits["compute_contract"], contract) {
		t.Errorf("B waits: %v", waits)
	}
	resume, attest := "/api/runs/"+id+"/resume", fmt.Sprint("/api/runs/", id, "/steps/", waits["step_run_id"], "/attest")

	// While B waits, a resume stops there again.
	if got := p.ok("POST", resume, said(t, "resume.json")); got["status"] != "waiting" {
		t.Errorf("a resume before the attestation: %v", got)
	}

	// Attest B SUCCESS with artifact references: B becomes SUCCESS, and the run remains waiting.
	time.Sleep(time.Hour)
	attested := time.Now()
	want := decoded(t, strings.Replace(said(t, "attested.json"), "...", fmt.Sprint(waits["step_run_id"]), 1))
	if got := any(p.ok("POST", attest, attestation(t))); !reflect.DeepEqual(got, want) {
		t.Errorf("attested: %v, want %v", got, want)
	}
	if status, answer := p.call("POST", attest, attestation(t)); status != http.StatusConflict {
		t.Errorf("a second attestation: %d %v", status, answer)
	}
	run = p.ok("GET", "/api/runs/"+id, "")
	steps = run["steps"].([]any)
	done := steps[1].(map[string]any)
	if run["status"] != "waiting" || run["ended_at"] != nil || len(steps) != 2 || done["step_run_id"] != waits["step_run_id"] ||
		done["status"] != "SUCCESS" || done["started_at"] != waits["started_at"] {
		t.Errorf("after the attestation: %v", run)
	}
	checkAttestation(t, done, contract, attested)

	// Resume: C executes, and the run becomes success.
	if got := p.ok("POST", resume, said(t, "resume.json")); got["id"] != id || got["status"] != "success" ||
		!reflect.DeepEqual(got["steps"], map[string]any{"SUCCESS": 3.0}) {
		t.Errorf("resumed: %v", got)
	}
	is, list, stepRuns := p.steps(id)
	if is != "success" || !slices.Equal(list, []string{"A=SUCCESS", "B=SUCCESS", "C=SUCCESS"}) || stepRuns["B"] != waits["step_run_id"] {
		t.Errorf("in the end the run is %s: %v", is, list)
	}
	if ended := p.ok("GET", "/api/runs/"+id, "")["ended_at"]; !isNow(ended, attested) {
		t.Errorf("the run has ended at %v", ended)
	}

	// Determinism: resuming twice does not duplicate step runs or rerun successful steps.
	if status, answer := p.call("POST", resume, said(t, "resume.json")); status != http.StatusConflict {
		t.Errorf("a resume of a run that has ended: %d %v", status, answer)
	}
	events := []string{
		"RunQueued", "RunStarted", "StepStarted A", "StepCompleted A", "StepWaitingForAttestation B", "StepAttested B",
		"SignalAccepted", "RunResumed", "StepStarted C", "StepCompleted C", "RunCompleted",
	}
	if got := b.types(t, id); !slices.Equal(got, events) {
		t.Errorf("events %q,\nwant %q", got, events)
	}
	if a, c := b.count(id, "A"), b.count(id, "C"); a != 1 || c != 1 {
		t.Errorf("A was executed %d times, C %d times", a, c)
	}
}

// isNow reports whether a time of an answer is that of the server a moment after a time.
func isNow(text any, at time.Time) bool {
	is, err := time.Parse(time.RFC3339Nano, fmt.Sprint(text))
	return err == nil && !is.Before(at) && is.Sub(at) < time.Minute
}

// checkAttestation compares an attestation with the columns of section 5, and with the body of
// section 7.1. Columns that must not be null are not.
func checkAttestation(t *testing.T, step map[string]any, contract any, at time.Time) {
	t.Helper()
	got, _ := step["attestation"].(map[string]any)
	want := []string{"artifacts", "attested_at", "attested_by", "contract_snapshot", "id", "notes", "outcome", "step_run_id"}
	body := decoded(t, attestation(t)).(map[string]any)
	if !slices.Equal(names(got), want) || got["step_run_id"] != step["step_run_id"] || got["attested_by"] != body["attested_by"] ||
		got["outcome"] != body["outcome"] || got["notes"] != body["notes"] || got["attested_at"] != step["ended_at"] ||
		!isNow(got["attested_at"], at) || !reflect.DeepEqual(got["contract_snapshot"], contract) {
		t.Errorf("attestation %v", got)
	}
	artifacts, _ := got["artifacts"].([]any)
	if len(artifacts) != 1 {
		t.Fatalf("artifacts %v", artifacts)
	}
	made, sent := artifacts[0].(map[string]any), body["artifacts"].([]any)[0].(map[string]any)
	if !slices.Equal(names(made), []string{"attestation_id", "bytes", "created_at", "id", "name", "sha256", "uri"}) ||
		made["attestation_id"] != got["id"] || made["created_at"] != got["attested_at"] || made["name"] != sent["name"] ||
		made["uri"] != sent["uri"] || made["sha256"] != sent["sha256"] || made["bytes"] != nil {
		t.Errorf("artifact %v", made)
	}
	for _, id := range []any{got["id"], made["id"], step["step_run_id"]} {
		if _, err := uuid.Parse(fmt.Sprint(id)); err != nil {
			t.Error(err)
		}
	}
}

// TestAttestedFailATT4: an attestation of FAIL ends the run, and no later step is executed.
func TestAttestedFailATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testAttestedFailATT4)
}

func testAttestedFailATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(sectionNine(t)))
	_, _, stepRuns := p.steps(id)
	attest := "/api/runs/" + id + "/steps/" + stepRuns["B"] + "/attest"
	time.Sleep(time.Hour)
	attested := time.Now()
	want := decoded(t, strings.NewReplacer("...", stepRuns["B"], "SUCCESS", "FAIL").Replace(said(t, "attested.json")))
	if got := any(p.ok("POST", attest, strings.Replace(attestation(t), "SUCCESS", "FAIL", 1))); !reflect.DeepEqual(got, want) {
		t.Errorf("attested: %v, want %v", got, want)
	}
	if is, steps, _ := p.steps(id); is != "error" || !slices.Equal(steps, []string{"A=SUCCESS", "B=FAIL"}) || b.count(id, "C") != 0 {
		t.Errorf("the run is %s: %v", is, steps)
	}
	if ended := p.ok("GET", "/api/runs/"+id, "")["ended_at"]; !isNow(ended, attested) {
		t.Errorf("the run has ended at %v", ended)
	}
	for path, body := range map[string]string{attest: attestation(t), "/api/runs/" + id + "/resume": said(t, "resume.json")} {
		if status, answer := p.call("POST", path, body); status != http.StatusConflict {
			t.Errorf("POST %s: %d %v", path, status, answer)
		}
	}
}

// differences are the sections of the specification of compute steps from which the runner
// differs, with a test that shows how.
var differences = map[string]func(t *testing.T){
	"§1, §5":     testAttestationsAreEvents,
	"§2":         testTasksHaveExecutors,
	"§3.1":       testPausedRunsWait,
	"§4.2":       testContractsHaveNoOtherKeys,
	"§5.1":       testIDsAreMade,
	"§5.2, §7.1": testDocumentsDigest,
	"§6.1":       testRunsAnswerAtOnce,
	"§6.2":       testAnyRunnerGoesOn,
	"§6.2, §7.2": testResumeOfForeignResumeATT5,
	"§7.1":       testAttestedByATT6,
}

var differenceRow = regexp.MustCompile(`(?m)^\| Compute Substrate (§[^|]*[^| ]) \|`)

// TestDifferencesATT3: where the runner differs from the specification of compute steps, the page
// of conformance says so, with a reason. It lists no other difference.
func TestDifferencesATT3(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed, shown []string
	for _, row := range differenceRow.FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
	}
	for at, show := range differences {
		shown = append(shown, at)
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, show)
		})
	}
	slices.Sort(listed)
	slices.Sort(shown)
	if !slices.Equal(listed, shown) {
		t.Errorf("docs/conformance.md lists the differences of %q, want %q", listed, shown)
	}
}

// testAttestationsAreEvents: the log has what the document has in tables.
func testAttestationsAreEvents(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(sectionNine(t)))
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestation(t))
	for e, err := range b.c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: id, PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.GetEventType() != "StepAttested" {
			continue
		}
		got, sent := decoded(t, string(e.GetPayloadJson())).(map[string]any), decoded(t, attestation(t)).(map[string]any)
		if got["attestedBy"] != sent["attested_by"] || got["outcome"] != sent["outcome"] || got["notes"] != sent["notes"] ||
			!reflect.DeepEqual(got["artifacts"], sent["artifacts"]) || !reflect.DeepEqual(got["contract"], decoded(t, said(t, "compute_contract.json"))) {
			t.Errorf("the event has %v", got)
		}
		return
	}
	t.Error("the log has no attestation")
}

// testTasksHaveExecutors: a task step is whatever its executor does.
func testTasksHaveExecutors(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, status := p.begin(p.manifest(`{"step_key":"A","step_type":"task"},{"step_key":"B","executor":"noop"}`))
	if status != "success" || b.count(id, "A") != 1 || b.count(id, "B") != 0 {
		t.Errorf("the run is %s, and the default executor was called %d and %d times", status, b.count(id, "A"), b.count(id, "B"))
	}
}

// testPausedRunsWait: a run that is paused by a signal waits too, and one that is cancelled is an
// error.
func testPausedRunsWait(t *testing.T) {
	b, let := newBed(t), make(chan struct{})
	p := b.play(t, holding(let))
	id := p.request(`{"step_key":"hold"},{"step_key":"after"}`)
	p.signal(id, "PAUSE", "")
	close(let)
	p.until(id, "waiting")
	if got := b.types(t, id); !slices.Contains(got, "RunPaused") || slices.Contains(got, "StepWaitingForAttestation") {
		t.Errorf("events %q", got)
	}
	p.signal(id, "CANCEL", "")
	p.until(id, "error")
}

// testContractsHaveNoOtherKeys: a contract with another key is refused.
func testContractsHaveNoOtherKeys(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	body := `{"name":"m","steps":[{"step_key":"B","step_type":"compute","compute_contract":` +
		strings.Replace(said(t, "compute_contract.json"), `"notes"`, `"timeout_minute": 5, "notes"`, 1) + `}]}`
	if status, answer := p.call("POST", "/api/manifests", body); status != http.StatusUnprocessableEntity || !slices.Equal(paths(answer), []string{"/steps/0/compute_contract/timeout_minute"}) {
		t.Errorf("%d %v", status, answer)
	}
}

// testIDsAreMade: two runners show an attestation and its artifact with the same ids.
func testIDsAreMade(t *testing.T) {
	b := newBed(t)
	p, other := b.start(t), b.serve(t, b.options(t, b.srv.Client(client.Options{})))
	id, _ := p.begin(p.manifest(sectionNine(t)))
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestation(t))
	if one, two := p.ok("GET", "/api/runs/"+id, ""), other.ok("GET", "/api/runs/"+id, ""); !reflect.DeepEqual(one, two) {
		t.Errorf("one runner shows %v, another one %v", one, two)
	}
}

// testDocumentsDigest: the body of section 7.1 as it stands has dots for a digest, and is refused.
// So is a place that is neither a URI nor a file of a share. Nothing is attested.
func testDocumentsDigest(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(sectionNine(t)))
	_, _, stepRuns := p.steps(id)
	for body, want := range map[string][]string{
		said(t, "attest.json"): {"/artifacts/0/sha256"},
		strings.Replace(attestation(t), "s3://bucket/path.xlsx", "path.xlsx", 1): {"/artifacts/0/uri"},
	} {
		status, answer := p.call("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", body)
		if status != http.StatusUnprocessableEntity || !slices.Equal(paths(answer), want) {
			t.Errorf("%s: %d %v", body, status, answer)
		}
	}
	if is, steps, _ := p.steps(id); is != "waiting" || !slices.Equal(steps, []string{"A=SUCCESS", "B=WAITING_FOR_ATTESTATION"}) {
		t.Errorf("the run is %s: %v", is, steps)
	}
}

// testRunsAnswerAtOnce: the id of a run comes before the run waits.
func testRunsAnswerAtOnce(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	run := p.ok("POST", "/api/runs", `{"manifest_id":"`+p.manifest(sectionNine(t))+`","initiated_by":"jed"}`)
	if !slices.Equal(names(run), []string{"id", "status"}) || run["status"] != "running" {
		t.Errorf("at once: %v", run)
	}
	if later := p.ok("GET", fmt.Sprint("/api/runs/", run["id"], "?wait=1h"), ""); later["status"] != "waiting" {
		t.Errorf("later: %v", later)
	}
}

// testAnyRunnerGoesOn: the runner that is called does not execute the steps that a resume goes on
// with.
func testAnyRunnerGoesOn(t *testing.T) {
	b := newBed(t)
	p, called := b.start(t), b.serve(t, b.options(t, b.srv.Client(client.Options{})))
	id, _ := p.begin(p.manifest(sectionNine(t)))
	_, _, stepRuns := p.steps(id)
	called.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestation(t))
	if got := called.ok("POST", "/api/runs/"+id+"/resume", said(t, "resume.json")); got["status"] != "success" || b.count(id, "C") != 1 {
		t.Errorf("resumed: %v, C was executed %d times", got, b.count(id, "C"))
	}
}
