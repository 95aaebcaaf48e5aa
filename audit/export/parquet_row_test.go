package export

import (
	"bytes"
	"testing"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"runlog/proto/contract"
)

// parquetRow is a record as a Parquet file has it, spelled out for the tests.
type parquetRow struct {
	EventID          []byte   `parquet:"event_id,string"`
	EventType        string   `parquet:"event_type,dict"`
	RunID            string   `parquet:"run_id,dict"`
	TenantID         string   `parquet:"tenant_id,dict"`
	ProjectID        string   `parquet:"project_id,dict"`
	EnvironmentID    string   `parquet:"environment_id,dict"`
	PlanID           string   `parquet:"plan_id,dict"`
	PlanVersion      string   `parquet:"plan_version,dict"`
	StepID           *string  `parquet:"step_id,dict,optional"`
	LogicalAttemptID int64    `parquet:"logical_attempt_id"`
	EngineAttemptID  int64    `parquet:"engine_attempt_id"`
	IdempotencyKey   string   `parquet:"idempotency_key,uncompressed"`
	EmittedAt        int64    `parquet:"emitted_at,timestamp(nanosecond)"`
	EmittedBy        *string  `parquet:"emitted_by,dict,optional"`
	CausedBySignalID *string  `parquet:"caused_by_signal_id,optional"`
	ParentEventID    *string  `parquet:"parent_event_id,optional"`
	ContractVersion  string   `parquet:"contract_version,dict"`
	RunSeq           int64    `parquet:"run_seq"`
	PersistedAt      int64    `parquet:"persisted_at,timestamp(nanosecond)"`
	PayloadSalt      []byte   `parquet:"payload_salt,string,uncompressed"`
	PayloadDigest    []byte   `parquet:"payload_digest,string,uncompressed"`
	RecordDigest     []byte   `parquet:"record_digest,string,uncompressed"`
	ChainDigest      []byte   `parquet:"chain_digest,string,uncompressed"`
	Inherited        []string `parquet:"inherited,list"`
	AppendedBy       *string  `parquet:"appended_by,dict,optional"`
	TokenID          *string  `parquet:"appended_by_token_id,dict,optional"`
	OriginalAt       *int64   `parquet:"original_persisted_at,optional,timestamp(nanosecond)"`
	OriginalSource   *string  `parquet:"original_source,dict,optional"`
	Extensions       *string  `parquet:"extensions,optional"`
	Payload          []byte   `parquet:"payload,string"`
}

func rowsOf(records []*Record) (rows []parquetRow) {
	for _, r := range records {
		row := parquetRow{
			EventID:   []byte(r.EventID.String()),
			EventType: r.Type, RunID: r.RunID,
			TenantID: r.TenantID, ProjectID: r.ProjectID, EnvironmentID: r.EnvironmentID,
			PlanID: r.PlanID, PlanVersion: r.PlanVersion, StepID: present(r.StepID),
			LogicalAttemptID: int64(r.LogicalAttemptID), EngineAttemptID: int64(r.EngineAttemptID),
			IdempotencyKey: r.IdempotencyKey, EmittedAt: r.EmittedAt,
			EmittedBy: present(r.EmittedBy), CausedBySignalID: present(r.CausedBySignalID), ParentEventID: present(r.ParentEventID),
			ContractVersion: r.Contract.String(), RunSeq: int64(r.RunSeq), PersistedAt: r.PersistedAt,
			PayloadSalt:   []byte(r.PayloadSalt.String()),
			PayloadDigest: []byte(r.PayloadDigest.String()),
			RecordDigest:  []byte(r.RecordDigest.String()),
			ChainDigest:   []byte(r.ChainDigest.String()),
			AppendedBy:    present(r.AppendedBy.Name), TokenID: present(r.AppendedBy.TokenID),
			OriginalAt: present(r.Original.PersistedAt), OriginalSource: present(r.Original.Source),
			Extensions: present(string(r.Extensions)), Payload: r.Payload, Inherited: namesOf(r.Absent),
		}
		rows = append(rows, row)
	}
	return rows
}

func namesOf(absent contract.Absent) (names []string) {
	for i, name := range []string{"tenantId", "projectId", "environmentId", "planId", "planVersion"} {
		if absent&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// present returns a value of an optional column; nil: null.
func present[T string | int64](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// fileOfRows returns the file that the Parquet library makes of rows: one row group.
func fileOfRows(t testing.TB, rows []parquetRow, manifest string) []byte {
	t.Helper()
	var out bytes.Buffer
	pages := newPageWriter(&out)
	w := parquet.NewGenericWriter[parquetRow](pages, parquetOptions()...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	pages.rows = int64(len(rows))
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := pages.close(manifest); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestParquetOfRows: columns that are written by the table of fields are those that the Parquet
// library makes of a struct with all fields.
func TestParquetOfRows(t *testing.T) {
	if want := parquet.NewSchema("event", parquet.SchemaOf(parquetRow{})); want.String() != parquetSchema.String() {
		t.Fatalf("the schema is\n%v\nwant\n%v", parquetSchema, want)
	}
	same := func(t testing.TB, records []*Record) {
		t.Helper()
		var out bytes.Buffer
		w := newParquetWriter(&out)
		for _, r := range records {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close("manifest"); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), fileOfRows(t, rowsOf(records), "manifest")) {
			t.Fatalf("%d records make another file than their rows", len(records))
		}
	}
	same(t, nil)
	same(t, typical(5_000)) // several pages
	records := typical(300)
	for i, r := range records {
		r.Absent = contract.Absent(i % 32)
		r.Extensions = bytes.Repeat([]byte("x"), i%7)
		r.CausedBySignalID, r.AppendedBy.Name = []string{"", "signal"}[i%2], []string{"", "a", "b"}[i%3]
	}
	same(t, records)
	rapid.Check(t, func(rt *rapid.T) { same(t, drawRecords(rt)) })
}
