package export

import (
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"

	"runlog/proto/contract"
)

const (
	// manifestKey has the manifest among the key-value metadata of a Parquet file.
	manifestKey = "runlog.manifest"
	// A row group is kept in memory until it is whole: it ends at so many rows, or so many bytes before compression.
	groupRows  = 100_000
	groupBytes = 64 << 20
	// rowsAtOnce are handed to the Parquet library together.
	rowsAtOnce = 256
)

// parquetRow is a record as Parquet has it: the columns of CSV, with types. Absent texts and times are null.
type parquetRow struct {
	EventID          []byte   `parquet:"event_id,string"`
	EventType        string   `parquet:"event_type,dict"`
	RunID            string   `parquet:"run_id,dict"`
	TenantID         string   `parquet:"tenant_id,dict"`
	ProjectID        string   `parquet:"project_id,dict"`
	EnvironmentID    string   `parquet:"environment_id,dict"`
	PlanID           string   `parquet:"plan_id,dict"`
	PlanVersion      string   `parquet:"plan_version,dict"`
	StepID           string   `parquet:"step_id,dict,optional"`
	LogicalAttemptID int64    `parquet:"logical_attempt_id"`
	EngineAttemptID  int64    `parquet:"engine_attempt_id"`
	IdempotencyKey   string   `parquet:"idempotency_key,uncompressed"`
	EmittedAt        int64    `parquet:"emitted_at,timestamp(nanosecond)"`
	EmittedBy        string   `parquet:"emitted_by,dict,optional"`
	CausedBySignalID string   `parquet:"caused_by_signal_id,optional"`
	ParentEventID    string   `parquet:"parent_event_id,optional"`
	ContractVersion  string   `parquet:"contract_version,dict"`
	RunSeq           int64    `parquet:"run_seq"`
	PersistedAt      int64    `parquet:"persisted_at,timestamp(nanosecond)"`
	PayloadDigest    []byte   `parquet:"payload_digest,string,uncompressed"`
	RecordDigest     []byte   `parquet:"record_digest,string,uncompressed"`
	ChainDigest      []byte   `parquet:"chain_digest,string,uncompressed"`
	Inherited        []string `parquet:"inherited,list"`
	ImportedAt       int64    `parquet:"imported_at,optional,timestamp(nanosecond)"`
	Payload          []byte   `parquet:"payload,string"`
}

// parquetSchema is the schema of a file.
var parquetSchema = parquet.NewSchema("event", parquet.SchemaOf(parquetRow{}))

// parquetWriter gathers rows and hands them on by the hundred, which is what the library is fast at.
type parquetWriter struct {
	out   *parquet.GenericWriter[parquetRow]
	rows  []parquetRow
	texts []byte // of the rows: what has no text of its own to share
	group struct{ rows, bytes int }
}

func newParquetWriter(out io.Writer) *parquetWriter {
	options := []parquet.WriterOption{parquet.Compression(&snappy.Codec{}), parquet.CreatedBy("runlog", "1", ""), parquetSchema}
	return &parquetWriter{out: parquet.NewGenericWriter[parquetRow](out, options...), rows: make([]parquetRow, 0, rowsAtOnce)}
}

func (w *parquetWriter) Write(r *Record) error {
	w.rows = append(w.rows, w.rowOf(r))
	w.group.rows++
	w.group.bytes += len(r.Payload) + 1024
	if len(w.rows) == rowsAtOnce || len(w.texts) >= bufferBytes || w.group.bytes >= groupBytes {
		return w.flush()
	}
	return nil
}

func (w *parquetWriter) flush() error {
	_, err := w.out.Write(w.rows)
	w.rows, w.texts = w.rows[:0], w.texts[:0]
	if err == nil && (w.group.rows >= groupRows || w.group.bytes >= groupBytes) {
		w.group.rows, w.group.bytes = 0, 0
		err = w.out.Flush()
	}
	return err
}

func (w *parquetWriter) Close(manifest string) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.out.SetKeyValueMetadata(manifestKey, manifest)
	return w.out.Close()
}

func (w *parquetWriter) rowOf(r *Record) parquetRow {
	return parquetRow{
		EventID:   w.text(appendUUID(w.texts, r.EventID)),
		EventType: r.Type, RunID: r.RunID,
		TenantID: r.TenantID, ProjectID: r.ProjectID, EnvironmentID: r.EnvironmentID,
		PlanID: r.PlanID, PlanVersion: r.PlanVersion, StepID: r.StepID,
		LogicalAttemptID: int64(r.LogicalAttemptID), EngineAttemptID: int64(r.EngineAttemptID),
		IdempotencyKey: r.IdempotencyKey, EmittedAt: r.EmittedAt,
		EmittedBy: r.EmittedBy, CausedBySignalID: r.CausedBySignalID, ParentEventID: r.ParentEventID,
		ContractVersion: r.Contract.String(), RunSeq: int64(r.RunSeq), PersistedAt: r.PersistedAt,
		PayloadDigest: w.text(appendHex(w.texts, r.PayloadDigest[:])),
		RecordDigest:  w.text(appendHex(w.texts, r.RecordDigest[:])),
		ChainDigest:   w.text(appendHex(w.texts, r.ChainDigest[:])),
		Inherited:     namesOf(r.Absent), ImportedAt: r.ImportedAt, Payload: w.text(append(w.texts, r.Payload...)),
	}
}

// text returns what was appended to the texts.
func (w *parquetWriter) text(texts []byte) []byte {
	from := len(w.texts)
	w.texts = texts
	return texts[from:len(texts):len(texts)]
}

func namesOf(absent contract.Absent) (names []string) {
	for _, f := range inheritable {
		if absent&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	return names
}
