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
	// A row group is kept in memory until it is complete: at a number of rows, or of bytes before
	// compression.
	groupRows  = 100_000
	groupBytes = 64 << 20
	// rowsAtOnce are passed to the Parquet library together.
	rowsAtOnce = 256
)

// parquetRow is a record as Parquet has it: the columns of CSV, with types. Absent texts and times
// are null, which the library writes reliably for pointers alone: of an empty string it makes a
// null or an empty text.
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

// parquetSchema is the schema of a file.
var parquetSchema = parquet.NewSchema("event", parquet.SchemaOf(parquetRow{}))

// parquetCodec compresses the pages of columns without a codec of their own.
var parquetCodec = &snappy.Codec{}

func parquetOptions() []parquet.WriterOption {
	// Without a buffer, a flush has written everything when it returns.
	return []parquet.WriterOption{parquetSchema, parquet.Compression(parquetCodec), parquet.DataPageVersion(2), parquet.DataPageStatistics(false), parquet.WriteBufferSize(0)}
}

// parquetWriter batches rows by the hundred: the library is fastest with batches.
type parquetWriter struct {
	out   *parquet.GenericWriter[parquetRow]
	pages *pageWriter
	rows  []parquetRow
	texts []byte // of the rows: texts that cannot share other memory
	group struct{ rows, bytes int }
}

func newParquetWriter(out io.Writer) *parquetWriter {
	pages := newPageWriter(out)
	return &parquetWriter{out: parquet.NewGenericWriter[parquetRow](pages, parquetOptions()...), pages: pages, rows: make([]parquetRow, 0, rowsAtOnce)}
}

func (w *parquetWriter) Write(r *Record) error {
	w.rows = append(w.rows, w.rowOf(r))
	w.group.bytes += len(r.Payload) + 1024
	if len(w.rows) == rowsAtOnce || len(w.texts) >= bufferBytes || w.group.bytes >= groupBytes {
		return w.flush()
	}
	return nil
}

func (w *parquetWriter) flush() error {
	_, err := w.out.Write(w.rows)
	w.group.rows += len(w.rows)
	w.rows, w.texts = w.rows[:0], w.texts[:0]
	if err == nil && (w.group.rows >= groupRows || w.group.bytes >= groupBytes) {
		err = w.endGroup()
	}
	return err
}

// endGroup writes the row group.
func (w *parquetWriter) endGroup() error {
	w.pages.rows = int64(w.group.rows)
	w.group.rows, w.group.bytes = 0, 0
	return w.out.Flush()
}

func (w *parquetWriter) Close(manifest string) error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.endGroup(); err != nil {
		return err
	}
	return w.pages.close(manifest) // the library is not closed: it would write an end of its own
}

func (w *parquetWriter) rowOf(r *Record) parquetRow {
	return parquetRow{
		EventID:   w.text(appendUUID(w.texts, r.EventID)),
		EventType: r.Type, RunID: r.RunID,
		TenantID: r.TenantID, ProjectID: r.ProjectID, EnvironmentID: r.EnvironmentID,
		PlanID: r.PlanID, PlanVersion: r.PlanVersion, StepID: present(r.StepID),
		LogicalAttemptID: int64(r.LogicalAttemptID), EngineAttemptID: int64(r.EngineAttemptID),
		IdempotencyKey: r.IdempotencyKey, EmittedAt: r.EmittedAt,
		EmittedBy: present(r.EmittedBy), CausedBySignalID: present(r.CausedBySignalID), ParentEventID: present(r.ParentEventID),
		ContractVersion: r.Contract.String(), RunSeq: int64(r.RunSeq), PersistedAt: r.PersistedAt,
		PayloadDigest: w.text(appendHex(w.texts, r.PayloadDigest[:])),
		RecordDigest:  w.text(appendHex(w.texts, r.RecordDigest[:])),
		ChainDigest:   w.text(appendHex(w.texts, r.ChainDigest[:])),
		Inherited:     namesOf(r.Absent), AppendedBy: present(r.AppendedBy.Name), TokenID: present(r.AppendedBy.TokenID),
		OriginalAt: present(r.Original.PersistedAt), OriginalSource: present(r.Original.Source),
		Extensions: present(string(r.Extensions)),
		Payload:    w.text(append(w.texts, r.Payload...)),
	}
}

// present returns a value of an optional column; nil: null.
func present[T string | int64](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	p := new(T)
	*p = v
	return p
}

// text returns the texts appended since an offset.
func (w *parquetWriter) text(texts []byte) []byte {
	from := len(w.texts)
	w.texts = texts
	return texts[from:len(texts):len(texts)]
}

func namesOf(absent contract.Absent) (names []string) {
	for i := range inheritable {
		if f := &inheritable[i]; absent&f.Absent != 0 {
			names = append(names, f.Name)
		}
	}
	return names
}
