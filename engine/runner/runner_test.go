package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestStartsAtOnceATT2: a run has its id before it is executed. The call with the same key again
// answers with the same run, and no other manifest gets the key.
func TestStartsAtOnceATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testStartsAtOnceATT2)
}

func testStartsAtOnceATT2(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	hanging, other := p.manifest(`{"step_key":"A","executor":"hang"}`), p.manifest(`{"step_key":"A"}`)
	keyed := func(manifest, key string) (int, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.api.URL+"/api/runs", strings.NewReader(`{"manifest_id":"`+manifest+`","initiated_by":"jed"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		resp, err := p.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, answer
	}
	began := time.Now()
	first, run := keyed(hanging, "nightly-4711")
	if first != http.StatusOK || run["status"] != "running" || time.Since(began) > time.Second {
		t.Errorf("%d %v after %v", first, run, time.Since(began))
	}
	if status, again := keyed(hanging, "nightly-4711"); status != http.StatusOK || again["id"] != run["id"] {
		t.Errorf("again: %d %v, want %v", status, again, run)
	}
	if status, answer := keyed(other, "nightly-4711"); status != http.StatusConflict {
		t.Errorf("another manifest: %d %v", status, answer)
	}
	if status, answer := keyed(hanging, "nightly-4712"); status != http.StatusOK || answer["id"] == run["id"] {
		t.Errorf("another key: %d %v", status, answer)
	}
	shown := p.ok("GET", "/api/runs/"+run["id"].(string)+"?wait=5m", "")
	if shown["status"] != "running" || time.Since(began) < 5*time.Minute {
		t.Errorf("%v after %v", shown, time.Since(began))
	}
	for _, wait := range []string{"x", "-1s", "2h"} {
		if status, answer := p.call("GET", "/api/runs/"+run["id"].(string)+"?wait="+wait, ""); status != http.StatusUnprocessableEntity {
			t.Errorf("wait=%s: %d %v", wait, status, answer)
		}
	}
}

// TestListRunsATT3: runs are listed, the newest first, in pages.
func TestListRunsATT3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testListRunsATT3)
}

func testListRunsATT3(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	b.fail["broken"] = 100
	manifests := map[string]string{"success": p.manifest(`{"step_key":"A"}`), "error": p.manifest(`{"step_key":"broken"}`), "waiting": p.manifest(acceptance)}
	var want []string
	for _, status := range []string{"success", "error", "waiting", "success"} {
		id, is := p.begin(manifests[status])
		if is != status {
			t.Fatalf("the run is %s, want %s", is, status)
		}
		want = append([]string{id + " " + manifests[status] + " " + status}, want...)
	}
	list := func(query string) (runs []string, next string) {
		got := p.ok("GET", "/api/runs?"+query, "")
		for _, x := range got["runs"].([]any) {
			r := x.(map[string]any)
			runs = append(runs, fmt.Sprint(r["id"], " ", r["manifest_id"], " ", r["status"]))
			if r["initiated_by"] != "jed" || r["started_at"] == nil || (r["ended_at"] == nil) != (r["status"] == "waiting") {
				t.Errorf("listed: %v", r)
			}
		}
		return runs, got["next_page_token"].(string)
	}
	if runs, next := list(""); !slices.Equal(runs, want) || next != "" {
		t.Errorf("runs %q, want %q; next %q", runs, want, next)
	}
	runs, next := list("limit=3")
	rest, end := list("limit=3&page_token=" + url.QueryEscape(next))
	if paged := slices.Concat(runs, rest); !slices.Equal(paged, want) || end != "" {
		t.Errorf("in pages %q, want %q", paged, want)
	}
	if runs, _ := list("manifest_id=" + manifests["waiting"]); !slices.Equal(runs, want[1:2]) {
		t.Errorf("of a manifest: %q", runs)
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "page_token=x"} {
		if status, answer := p.call("GET", "/api/runs?"+query, ""); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %v", query, status, answer)
		}
	}
}

// TestListManifestsATT1: manifests are listed, the newest first, in pages. A run, and the same
// manifest again, make it no newer. A runner of another tenant with the same store has none of
// them.
func TestListManifestsATT1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testListManifestsATT1)
}

func testListManifestsATT1(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	list := func(p *process, query string) (ids []string, next string) {
		got := p.ok("GET", "/api/manifests?"+query, "")
		for _, x := range got["manifests"].([]any) {
			m := x.(map[string]any)
			ids = append(ids, m["id"].(string))
			if m["name"] != "m" || m["created_at"] == nil {
				t.Errorf("listed: %v", m)
			}
		}
		return ids, got["next_page_token"].(string)
	}
	if ids, next := list(p, ""); len(ids) > 0 || next != "" {
		t.Errorf("before the first one: %q, next %q", ids, next)
	}
	var want []string
	dir := strings.TrimPrefix(b.base, "file://")
	for i := range 5 {
		id := p.manifest(fmt.Sprintf(`{"step_key":"s%d"}`, i))
		files, err := filepath.Glob(filepath.Join(dir, "manifests", "*", id+".json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("the manifest is in %q, %v", files, err)
		}
		at := time.Unix(int64(1_000_000+i/2), 0) // Two are of one moment.
		if err := os.Chtimes(files[0], at, at); err != nil {
			t.Fatal(err)
		}
		want = append(want, id)
	}
	p.begin(want[0])
	p.manifest(`{"step_key":"s1"}`)
	slices.SortFunc(want[0:2], strings.Compare)
	slices.SortFunc(want[2:4], strings.Compare)
	want = []string{want[4], want[2], want[3], want[0], want[1]}
	if ids, next := list(p, ""); !slices.Equal(ids, want) || next != "" {
		t.Errorf("manifests %q, want %q; next %q", ids, want, next)
	}
	for _, limit := range []int{1, 2, 4, 5} {
		var paged []string
		for next, more := "", true; more; more = next != "" {
			var ids []string
			ids, next = list(p, fmt.Sprintf("limit=%d&page_token=%s", limit, url.QueryEscape(next)))
			if paged = append(paged, ids...); len(ids) == 0 || len(ids) > limit {
				t.Fatalf("a page of %d has %q", limit, ids)
			}
		}
		if !slices.Equal(paged, want) {
			t.Errorf("in pages of %d: %q, want %q", limit, paged, want)
		}
	}
	for _, query := range []string{"limit=0", "limit=101", "limit=x", "page_token=x", "page_token=1." + strings.Repeat("x", 36)} {
		if status, answer := p.call("GET", "/api/manifests?"+query, ""); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %v", query, status, answer)
		}
	}
	o := b.options(t, b.srv.Client(client.Options{}))
	o.Tenant = "rival"
	other := b.run(t, o)
	if ids, _ := list(other, ""); len(ids) > 0 {
		t.Errorf("another tenant sees %q", ids)
	}
	if status, answer := other.call("GET", "/api/manifests/"+want[0], ""); status != http.StatusNotFound {
		t.Errorf("another tenant gets %d %v", status, answer)
	}
}

// TestFailedStepSaysWhyATT3: a run shows why a step of it has failed, and why it has failed itself.
func TestFailedStepSaysWhyATT3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.fail["broken"] = 100
		p := b.start(t)
		id, _ := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"broken"}`))
		run := p.ok("GET", "/api/runs/"+id, "")
		steps := run["steps"].([]any)
		why, _ := steps[1].(map[string]any)["error"].(map[string]any)
		whole, _ := run["error"].(map[string]any)
		if why["code"] != "BUSY" || why["message"] != "not yet" || steps[0].(map[string]any)["error"] != nil || whole["code"] != "STEP_FAILED" {
			t.Errorf("the run: %v", run)
		}
	})
}

// TestDocumentsBodyATT4: the body of an attestation is taken with what its columns may have. The
// run shows the attestation in their names, with ids and times.
func TestDocumentsBodyATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testDocumentsBodyATT4)
}

func testDocumentsBodyATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	digest := strings.Repeat("0aB9", 16)
	for _, tt := range []struct{ notes, artifact, uri, sha, bytes string }{
		{"null", `"uri":"s3://b/p.xlsx","sha256":null,"bytes":null`, "s3://b/p.xlsx", "<nil>", "<nil>"},
		{`"n"`, `"uri":"\\\\server\\share\\m.xlsx","sha256":"` + digest + `","bytes":7`, `\\server\share\m.xlsx`, strings.ToLower(digest), "7"},
		{`""`, `"uri":"\\\\server\\share\\a b#1%.xlsx"`, `\\server\share\a b#1%.xlsx`, "<nil>", "<nil>"},
		{"null", `"uri":"file:///C:/m.xlsx","sha256":""`, "file:///C:/m.xlsx", "<nil>", "<nil>"},
	} {
		id, _ := p.begin(m)
		_, _, stepRuns := p.steps(id)
		got := p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest",
			`{"attested_by":"jed","outcome":"SUCCESS","notes":`+tt.notes+`,"artifacts":[{"name":"y",`+tt.artifact+`}]}`)
		if got["ok"] != true {
			t.Errorf("%s: %v", tt.artifact, got)
		}
		step := p.ok("GET", "/api/runs/"+id, "")["steps"].([]any)[1].(map[string]any)
		a := step["attestation"].(map[string]any)
		x := a["artifacts"].([]any)[0].(map[string]any)
		notes := map[string]any{`"n"`: "n"}[tt.notes]
		if a["step_run_id"] != stepRuns["B"] || a["id"] == "" || a["attested_by"] != "jed" || a["outcome"] != "SUCCESS" || a["notes"] != notes ||
			a["attested_at"] != step["ended_at"] || a["attested_at"] == nil || x["attestation_id"] != a["id"] || x["id"] == a["id"] ||
			x["created_at"] != a["attested_at"] || x["name"] != "y" || x["uri"] != tt.uri || fmt.Sprint(x["sha256"]) != tt.sha || fmt.Sprint(x["bytes"]) != tt.bytes {
			t.Errorf("%s: attestation %v", tt.artifact, a)
		}
		if s, ok := a["contract_snapshot"].(map[string]any); !ok || s["verification"] != "operator_attest" || fmt.Sprint(s["timeout_minutes"]) != "5" {
			t.Errorf("contract %v", a["contract_snapshot"])
		}
	}
}

// TestApprovalsSEC10: a manifest may ask for several attesters. The step run waits until the last
// of them, and the run shows the approvals so far.
func TestApprovalsSEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testApprovalsSEC10)
}

func testApprovalsSEC10(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(strings.Replace(acceptance, `"notes":"n"`, `"approvals":2`, 1)))
	_, _, stepRuns := p.steps(id)
	attest := func(who string, want int) map[string]any {
		t.Helper()
		status, answer, err := p.try("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", strings.Replace(attestB, "jed", who, 1))
		if err != nil || status != want {
			t.Fatalf("%s: %d %v %v, want %d", who, status, answer, err, want)
		}
		return answer
	}
	if got := attest("jed", http.StatusOK); got["new_status"] != "WAITING_FOR_ATTESTATION" || fmt.Sprint(got["approvals"], got["approvals_needed"]) != "1 2" {
		t.Errorf("the first: %v", got)
	}
	attest("jed", http.StatusConflict)
	_, got, err := p.try("GET", "/api/runs/"+id, "")
	if err != nil || !strings.Contains(fmt.Sprint(got), "approvals:[map[approvals:1 approvals_needed:2") {
		t.Errorf("the run: %v, %v", got, err)
	}
	if got := attest("ann", http.StatusOK); got["new_status"] != "SUCCESS" {
		t.Errorf("the last: %v", got)
	}
	attest("cid", http.StatusConflict)
	want := []string{"RunQueued", "RunStarted", "StepStarted A", "StepCompleted A", "StepWaitingForAttestation B", "StepAttestationApproved B", "StepAttested B"}
	if types := b.types(t, id); !slices.Equal(types, want) {
		t.Errorf("events %q", types)
	}
}

// TestRacingAttestationsATT4: of attestations that race, one wins, and the log has one.
func TestRacingAttestationsATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRacingAttestationsATT4)
}

func testRacingAttestationsATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	var mu sync.Mutex
	statuses := map[int]int{}
	var racing sync.WaitGroup
	for range 8 {
		racing.Go(func() {
			status, _, err := p.try("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
			mu.Lock()
			defer mu.Unlock()
			if statuses[status]++; err != nil {
				t.Error(err)
			}
		})
	}
	racing.Wait()
	if statuses[http.StatusOK] != 1 || statuses[http.StatusConflict] != 7 {
		t.Errorf("statuses %v", statuses)
	}
	// So do resumes: all see the same end, and C is executed once.
	for range 4 {
		racing.Go(func() {
			status, answer, err := p.try("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`)
			if err != nil || status != http.StatusConflict && (status != http.StatusOK || answer["status"] != "success") {
				t.Errorf("resume: %d %v %v", status, answer, err)
			}
		})
	}
	racing.Wait()
	if n := b.count(id, "C"); n != 1 {
		t.Errorf("C was executed %d times", n)
	}
}

// TestBadInputATT4: bad bodies are refused with all faults, and what is not there is not found.
func TestBadInputATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testBadInputATT4)
}

func testBadInputATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	other, _ := p.begin(p.manifest(`{"step_key":"A"}`))
	attest := "/api/runs/" + id + "/steps/" + stepRuns["B"] + "/attest"
	for _, tt := range []struct {
		path, body string
		status     int
		faults     []string
	}{
		{"/api/manifests", `{"name":"","steps":[{"step_key":"B","step_type":"compute"},{"step_key":"C","step_type":"magic"},{"step_key":"D","executor":"teleport"},` +
			`{"step_key":"E","depends_on":["nowhere"]},{"step_key":"F","step_type":"compute",` + strings.Replace(contractB, "operator_attest", "nothing", 1) + `}]}`, 422,
			[]string{"/name", "/steps/1/step_type", "/steps/0/compute_contract", "/steps/4/compute_contract/verification", "/steps/3/depends_on/0", "/steps/2/executor"}},
		{"/api/manifests", `{"name":"m","step":[]}`, 422, []string{"", "/steps"}},
		{"/api/manifests", `{"name":"m","steps":[]}`, 422, []string{"/steps"}},
		{"/api/manifests", `{`, 422, []string{""}},
		{"/api/manifests", `{"name":1}`, 422, []string{"/name"}},
		{"/api/runs", `{"manifest_id":"00000000-0000-0000-0000-000000000000","initiated_by":"jed"}`, 404, nil},
		{"/api/runs", `{"manifest_id":"../../etc/passwd","initiated_by":"jed"}`, 404, nil},
		{"/api/runs", `{"manifest_id":"x"}`, 422, []string{"/initiated_by"}},
		{attest, `{"attested_by":"","outcome":"DONE","artifacts":[{"name":"y"},{"uri":"y","sha256":"zz","bytes":-1}]}`, 422,
			[]string{"/attested_by", "/outcome", "/artifacts/0/uri", "/artifacts/1/name", "/artifacts/1/uri", "/artifacts/1/sha256", "/artifacts/1/bytes"}},
		{attest, `{"attested_by":"jed","outcome":"SUCCESS","artefacts":[]}`, 422, []string{""}},
		{attest, `{"attested_by":"jed","outcome":"FAIL","outcome":"SUCCESS"}`, 422, []string{"/outcome"}},
		{attest, `{"attested_by":"jed","outcome":"FAIL","Outcome":"SUCCESS"}`, 422, []string{""}},
		{attest, strings.Replace(attestB, `"bytes":5`, `"uri":"s3://other"`, 1), 422, []string{"/artifacts/0/uri"}},
		{"/api/manifests", `{"name":"m","steps":[{"step_key":"A","executor":"noop","executor":"count"}]}`, 422, []string{"/steps/0/executor"}},
		{"/api/runs/" + other + "/steps/" + stepRuns["B"] + "/attest", attestB, 404, nil},
		{"/api/runs/none/steps/" + stepRuns["B"] + "/attest", attestB, 404, nil},
		{"/api/runs/" + id + "/steps/" + stepRuns["A"] + "/attest", attestB, 409, nil},
		{"/api/runs/none/resume", `{"initiated_by":"jed"}`, 404, nil},
		{"/api/runs/" + other + "/resume", `{"initiated_by":"jed"}`, 409, nil},
	} {
		status, answer := p.call("POST", tt.path, tt.body)
		var paths []string
		if list, ok := answer["faults"].([]any); ok {
			for _, f := range list {
				paths = append(paths, f.(map[string]any)["path"].(string))
			}
		}
		if status != tt.status || answer["error"] == "" || !slices.Equal(paths, tt.faults) {
			t.Errorf("POST %s %.60s: %d %v", tt.path, tt.body, status, answer)
		}
	}
	if status, answer := p.call("GET", "/api/manifests/none", ""); status != http.StatusNotFound {
		t.Errorf("%d %v", status, answer)
	}
}

// TestRetriesATT2: an attempt that fails is retried within the step run; a step that fails for good
// fails the run, and what depends on it is skipped.
func TestRetriesATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetriesATT2)
}

func testRetriesATT2(t *testing.T) {
	b := newBed(t)
	b.fail["flaky"], b.fail["broken"] = 1, 100
	p := b.start(t)
	id, status := p.begin(p.manifest(`{"step_key":"flaky"},{"step_key":"broken"},{"step_key":"after","depends_on":["broken"]},{"step_key":"apart","depends_on":["flaky"]}`))
	is, steps, _ := p.steps(id)
	if status != "error" || is != "error" || !slices.Equal(steps, []string{"flaky=SUCCESS", "broken=FAIL", "after=SKIPPED", "apart=SUCCESS"}) {
		t.Errorf("the run is %s: %v", is, steps)
	}
	if b.count(id, "flaky") != 2 || b.count(id, "broken") != 3 || b.count(id, "after") != 0 {
		t.Errorf("executed %v", b.executed)
	}
	if got := b.types(t, id); slices.Index(got, "StepStarted broken")+3 != slices.Index(got, "StepFailed broken") {
		t.Errorf("events %q", got)
	}
}

// TestSignalsENG2: a CANCEL ends a step that hangs, and a PAUSE holds a run until its RESUME.
func TestSignalsENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSignalsENG2)
}

func testSignalsENG2(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	signal := func(id, signalType string) {
		t.Helper()
		res, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: signalType, SignalType: signalType})
		if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
			t.Fatal(res, err)
		}
	}
	hanging := p.manifest(`{"step_key":"A","executor":"hang"},{"step_key":"B"}`)
	ids := make(chan string, 1)
	go func() {
		_, status := p.begin(hanging)
		ids <- status
	}()
	id := p.running(hanging)
	signal(id, "CANCEL")
	if got := <-ids; got != "error" {
		t.Errorf("the run is %s", got)
	}
	want := []string{"RunQueued", "RunStarted", "StepStarted A", "SignalAccepted", "StepFailed A", "RunCancelled"}
	if got := b.types(t, id); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	waiting, _ := p.begin(p.manifest(acceptance))
	signal(waiting, "CANCEL")
	p.until(waiting, "error")
	paused, _ := p.begin(p.manifest(acceptance))
	signal(paused, "PAUSE")
	b.happens(t, paused, "RunPaused")
	_, _, stepRuns := p.steps(paused)
	p.ok("POST", "/api/runs/"+paused+"/steps/"+stepRuns["B"]+"/attest", attestB)
	if got := p.ok("POST", "/api/runs/"+paused+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" {
		t.Errorf("resumed: %v", got)
	}
}

// running waits until the one run of a manifest executes its first step, and returns its id.
func (p *process) running(manifest string) (id string) {
	p.t.Helper()
	bubble.Until(p.t, "the start of a step", func() bool {
		for run, err := range p.c.ListRuns(p.t.Context(), &runlogv1.ListRunsRequest{PlanId: manifest}) {
			if err != nil {
				p.t.Fatal(err)
			}
			if _, steps, _ := p.steps(run.GetRunId()); len(steps) > 0 {
				id = run.GetRunId()
			}
		}
		return id != ""
	})
	return id
}

func (p *process) until(runID, want string) {
	p.t.Helper()
	bubble.Until(p.t, "run "+runID+" is "+want, func() bool {
		is, _, _ := p.steps(runID)
		return is == want
	})
}

// TestChangedPlanPLAN2: a plan that was changed in its store fails the run, with both digests on
// record.
func TestChangedPlanPLAN2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testChangedPlanPLAN2)
}

func testChangedPlanPLAN2(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	uri, engineType := b.base+"/swapped.json", runner.EngineType
	if err := b.blobs.Put(t.Context(), uri, strings.NewReader("{}"), 2); err != nil {
		t.Fatal(err)
	}
	digest := strings.Repeat("a", 64)
	if _, err := p.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{
		RunRequestId: "r", RunId: "r", TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue, EngineType: &engineType,
		PlanRef: &runlogv1.PlanRef{Uri: uri, Sha256: digest, SchemaVersion: "v1.2", PlanId: "p", PlanVersion: "1"},
	}); err != nil {
		t.Fatal(err)
	}
	p.until("r", "error")
	var last *runlogv1.EventRecord
	for e, err := range p.c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "r", PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			t.Fatal(err)
		}
		last = e
	}
	var payload struct {
		Error struct {
			Code    string
			Details struct{ ExpectedSha256, ActualSha256 string }
		}
	}
	if err := json.Unmarshal(last.GetPayloadJson(), &payload); err != nil || last.GetEventType() != "RunFailed" ||
		payload.Error.Code != "PLAN_INTEGRITY_VALIDATION_FAILED" || payload.Error.Details.ExpectedSha256 != digest || len(payload.Error.Details.ActualSha256) != 64 {
		t.Errorf("%s %s, %v", last.GetEventType(), last.GetPayloadJson(), err)
	}
}

// TestForeignResumeATT2: while a step waits for its attestation, nothing else of the run is
// executed, also if another writer has resumed the run.
func TestForeignResumeATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testForeignResumeATT2)
}

func testForeignResumeATT2(t *testing.T) {
	b := newBed(t)
	released := make(chan struct{}, 100)
	p := b.startWith(t, between("ReleaseLease", func(context.Context, any) { released <- struct{}{} }))
	m := p.manifest(acceptance + `,{"step_key":"D"}`)
	id, _ := p.begin(m)
	res, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: "s", SignalType: "RESUME"})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		t.Fatal(res, err)
	}
	named := events.Run{ID: id, Tenant: "acme", Project: "shop", Environment: "prod", Plan: m, PlanVersion: "1"}
	resumed, err := named.Resumed(events.Cause{SignalID: "s", Engine: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: id, Events: []*runlogv1.EventWrite{resumed}}); err != nil {
		t.Fatal(err)
	}
	// The worker releases its lease, and then the one of the requeue.
	for _, requeue := range []bool{false, true} {
		if requeue {
			if _, err := p.c.RequeueRun(t.Context(), &runlogv1.RequeueRunRequest{RunId: id}); err != nil {
				t.Fatal(err)
			}
		}
		<-released
		bubble.Until(t, "the end of the lease", func() bool {
			now, err := p.c.ListQueuedRuns(t.Context(), &runlogv1.ListQueuedRunsRequest{TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue})
			if err != nil || len(now.GetRuns()) != 1 {
				t.Fatal(now, err)
			}
			return now.GetRuns()[0].GetState() == runlogv1.QueuedRunState_RUNNING
		})
	}
	if _, steps, _ := p.steps(id); !slices.Equal(steps, []string{"A=SUCCESS", "B=WAITING_FOR_ATTESTATION"}) || b.count(id, "D") != 0 {
		t.Errorf("steps %v; D was executed %d times", steps, b.count(id, "D"))
	}
}

// TestOtherEnginesATT3: the runs of other engines are none of the runner's.
func TestOtherEnginesATT3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOtherEnginesATT3)
}

func testOtherEnginesATT3(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	other := "temporal"
	if _, err := p.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{
		RunRequestId: "r", RunId: "r", TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", EngineType: &other,
		PlanRef: &runlogv1.PlanRef{PlanId: "p", PlanVersion: "1"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, call := range [][3]string{
		{"GET", "/api/runs/r", ""}, {"POST", "/api/runs/r/resume", `{"initiated_by":"jed"}`}, {"POST", "/api/runs/r/steps/s/attest", attestB},
	} {
		if status, answer := p.call(call[0], call[1], call[2]); status != http.StatusNotFound {
			t.Errorf("%s %s: %d %v", call[0], call[1], status, answer)
		}
	}
}

// TestOptions: what is missing is named.
func TestOptions(t *testing.T) {
	t.Parallel()
	if _, err := runner.New(runner.Options{Client: &client.Client{}}); err == nil || !strings.Contains(err.Error(), "Executors is missing") {
		t.Error(err)
	}
}

// TestTwoRunnersATT5: two runners of one queue never execute one step at once, and both serve any
// run.
func TestTwoRunnersATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testTwoRunnersATT5)
}

func testTwoRunnersATT5(t *testing.T) {
	b := newBed(t, clienttest.Nodes(3))
	one, two := b.start(t), b.start(t)
	m := one.manifest(acceptance)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			from, to := one, two
			if i%2 == 0 {
				from, to = two, one
			}
			id, status := from.begin(m)
			if status != "waiting" {
				t.Error(id, status)
				return
			}
			_, _, stepRuns := to.steps(id)
			to.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
			if got := to.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" || b.count(id, "A") != 1 || b.count(id, "C") != 1 {
				t.Errorf("resumed: %v", got)
			}
		})
	}
	all.Wait()
}
