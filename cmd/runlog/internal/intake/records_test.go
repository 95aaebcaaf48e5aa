package intake

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"

	"runlog/audit/export"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestIntakeRecords: the event of a record of an export is taken as it was appended, on both
// contract lines, without the members that a record has beside it and without what it has
// inherited.
func TestIntakeRecords(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.0.0", "1.1"} {
		record := export.Record{Event: contract.Event{
			Type: "RunPaused", RunID: "run", TenantID: "t", ProjectID: "p", EnvironmentID: "e", PlanID: "plan", PlanVersion: "1",
			LogicalAttemptID: 2, EngineAttemptID: 1, IdempotencyKey: "pause-run", Payload: []byte(`{"note":"n"}`),
		}, RunSeq: 3, PersistedAt: 1}
		record.Contract, _ = contract.ParseLine(version)
		if record.Contract == contract.Line11 {
			record.Absent = contract.AbsentTenant
		}
		var file bytes.Buffer
		out, err := export.NewWriter(export.JSONLines, &file)
		if err == nil {
			err = errors.Join(out.Write(&record), out.Close("no manifest"))
		}
		if err != nil {
			t.Fatal(err)
		}
		taken := readAll(t, &file)[0]
		items := taken.items
		if len(items) != 1 {
			t.Fatalf("%s: %d events, refused %+v", version, len(items), taken)
		}
		e := items[0].event
		if got := string(e.GetPayloadJson()); got != `{"note":"n"}` || e.GetIdempotencyKey() != "pause-run" || e.GetLogicalAttemptId() != 2 {
			t.Errorf("%s: %v", version, e)
		}
		if inherits := e.GetTenantId() == ""; inherits != (version == "1.1") {
			t.Errorf("%s: tenant %q", version, e.GetTenantId())
		}
	}
}

// TestKeptRecordThatDivergesD3: an event of an export or a salvage whose key has another event is
// not stored. That is no success: it may be lost otherwise.
func TestKeptRecordThatDivergesD3(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		var out, stderr bytes.Buffer
		r := report{out: bufio.NewWriter(&out), stderr: &stderr, runs: map[string]*runTotal{}, odd: map[string]bool{}}
		r.stored(outcome{run: "run", lastSeq: 9, results: []stored{
			{origin{"lost.jsonl", 7, 7}, "SignalAccepted", kept, &runlogv1.AppendResult{RunSeq: 3, Diverged: true}},
		}})
		if refused := r.total.Refused == 1 && r.total.Diverged == 0 && r.of("run").Refused == 1; refused != kept {
			t.Errorf("kept %t: %+v", kept, r.total)
		}
		if says := strings.Contains(stderr.String(), "lost.jsonl:7: is not stored: runSeq 3"); says != kept {
			t.Errorf("kept %t: %q", kept, stderr.String())
		}
	}
}
