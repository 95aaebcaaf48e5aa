package intake

import (
	"bytes"
	"errors"
	"testing"

	"runlog/audit/export"
	"runlog/proto/contract"
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
