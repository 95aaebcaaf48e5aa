package export

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"runlog/audit/proof"
)

// columns are those of CSV and of Parquet, in their order.
var columns = [...]string{
	"event_id", "event_type", "run_id", "tenant_id", "project_id", "environment_id", "plan_id", "plan_version", "step_id",
	"logical_attempt_id", "engine_attempt_id", "idempotency_key", "emitted_at", "emitted_by", "caused_by_signal_id",
	"parent_event_id", "contract_version", "run_seq", "persisted_at", "payload_digest", "record_digest", "chain_digest",
	"inherited", "appended_by", "appended_by_token_id", "original_persisted_at", "original_source", "extensions", "payload",
}

// manifestComment begins the last line of a CSV file.
const manifestComment = "# runlog manifest: "

// csvWriter writes a record a row (RFC 4180), rows ending in a line feed alone.
type csvWriter struct {
	out io.Writer
	buf []byte
}

func newCSVWriter(out io.Writer) *csvWriter {
	w := &csvWriter{out, make([]byte, 0, bufferBytes+bufferBytes/4)}
	w.buf = append(append(w.buf, strings.Join(columns[:], ",")...), '\n')
	return w
}

func (w *csvWriter) Write(r *Record) error {
	w.buf = appendRow(w.buf, r)
	return w.spill(bufferBytes)
}

func (w *csvWriter) Close(manifest string) error {
	if manifest != "" {
		w.buf = append(append(append(w.buf, manifestComment...), proof.Quote(manifest)...), '\n')
	}
	return w.spill(0)
}

func (w *csvWriter) spill(most int) error {
	if len(w.buf) <= most {
		return nil
	}
	_, err := w.out.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// appendRow appends a record's row with its line feed.
func appendRow(b []byte, r *Record) []byte {
	b = append(appendUUID(b, r.EventID), ',')
	for _, text := range [...]string{
		r.Type, r.RunID, r.TenantID, r.ProjectID, r.EnvironmentID, r.PlanID, r.PlanVersion, r.StepID,
	} {
		b = append(appendCell(b, text), ',')
	}
	b = append(strconv.AppendUint(b, uint64(r.LogicalAttemptID), 10), ',')
	b = append(strconv.AppendUint(b, uint64(r.EngineAttemptID), 10), ',')
	b = append(appendCell(b, r.IdempotencyKey), ',')
	b = append(appendTime(b, r.EmittedAt), ',')
	for _, text := range [...]string{r.EmittedBy, r.CausedBySignalID, r.ParentEventID} {
		b = append(appendCell(b, text), ',')
	}
	b = append(append(b, r.Contract.String()...), ',')
	b = append(strconv.AppendUint(b, r.RunSeq, 10), ',')
	b = append(appendTime(b, r.PersistedAt), ',')
	b = append(appendHex(b, r.PayloadDigest[:]), ',')
	b = append(appendHex(b, r.RecordDigest[:]), ',')
	b = append(appendHex(b, r.ChainDigest[:]), ',')
	b = append(appendNames(b, r.Absent, "", " "), ',')
	b = append(appendCell(b, r.AppendedBy.Name), ',')
	b = append(appendCell(b, r.AppendedBy.TokenID), ',')
	if r.Original.PersistedAt != 0 {
		b = appendTime(b, r.Original.PersistedAt)
	}
	b = append(appendCell(append(b, ','), r.Original.Source), ',')
	b = append(appendCell(b, string(r.Extensions)), ',', '"')
	for rest := r.Payload; ; {
		i := bytes.IndexByte(rest, '"')
		if i < 0 {
			return append(append(b, rest...), '"', '\n')
		}
		b = append(append(b, rest[:i+1]...), '"')
		rest = rest[i+1:]
	}
}

// delimits marks the bytes for which a cell must be quoted.
var delimits = [256]bool{'"': true, ',': true, '\n': true, '\r': true}

func appendCell(b []byte, text string) []byte {
	plain := true
	for i := range len(text) {
		plain = plain && !delimits[text[i]]
	}
	if plain {
		return append(b, text...)
	}
	return append(append(append(b, '"'), strings.ReplaceAll(text, `"`, `""`)...), '"')
}
