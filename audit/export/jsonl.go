package export

import (
	"bytes"
	"crypto/sha256"
	"io"
	"strconv"

	"runlog/audit/proof"
	"runlog/proto/contract/jsontext"
)

// manifestMember begins the last line of a file of JSON lines.
const manifestMember = `{"manifest":`

// IsManifestLine reports whether a line is the last one of a file of JSON lines.
func IsManifestLine(line []byte) bool { return bytes.HasPrefix(line, []byte(manifestMember)) }

// IsRecordLine reports whether a line is a record of a file of JSON lines, by the digests that it
// has beside its event. A flat 1.1 event may have any members too, but not these.
func IsRecordLine(line []byte) bool {
	_, rest, _ := bytes.Cut(line, []byte(`","payloadDigest":"`))
	for _, next := range [...]string{`","recordDigest":"`, `","chainDigest":"`, `","inherited":[`} {
		if len(rest) < hexDigest {
			return false
		}
		var found bool
		if rest, found = bytes.CutPrefix(rest[hexDigest:], []byte(next)); !found {
			return false
		}
	}
	return bytes.HasPrefix(line, []byte(`{"eventId":"`))
}

// hexDigest is the length of a digest in a line.
const hexDigest = 2 * sha256.Size

// jsonWriter writes a record a line, as the API has it in proto-JSON, with the payload as the
// object that was stored.
type jsonWriter struct {
	out io.Writer
	buf []byte
}

func (w *jsonWriter) Write(r *Record) error {
	w.buf = appendLine(w.buf, r)
	return w.spill(bufferBytes)
}

func (w *jsonWriter) Close(manifest string) error {
	if manifest != "" {
		w.buf = append(append(append(w.buf, manifestMember...), proof.Quote(manifest)...), "}\n"...)
	}
	return w.spill(0)
}

// spill writes the buffer if it exceeds a size.
func (w *jsonWriter) spill(most int) error {
	if len(w.buf) <= most {
		return nil
	}
	_, err := w.out.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// appendLine appends a record's line with its line feed.
func appendLine(b []byte, r *Record) []byte {
	b = appendUUID(append(b, `{"eventId":"`...), r.EventID)
	b = jsontext.AppendQuoted(append(b, `","eventType":`...), r.Type)
	b = jsontext.AppendQuoted(append(b, `,"runId":`...), r.RunID)
	b = jsontext.AppendQuoted(append(b, `,"tenantId":`...), r.TenantID)
	b = jsontext.AppendQuoted(append(b, `,"projectId":`...), r.ProjectID)
	b = jsontext.AppendQuoted(append(b, `,"environmentId":`...), r.EnvironmentID)
	b = jsontext.AppendQuoted(append(b, `,"planId":`...), r.PlanID)
	b = jsontext.AppendQuoted(append(b, `,"planVersion":`...), r.PlanVersion)
	b = appendOptional(b, `,"stepId":`, r.StepID)
	b = strconv.AppendUint(append(b, `,"logicalAttemptId":`...), uint64(r.LogicalAttemptID), 10)
	b = strconv.AppendUint(append(b, `,"engineAttemptId":`...), uint64(r.EngineAttemptID), 10)
	b = jsontext.AppendQuoted(append(b, `,"idempotencyKey":`...), r.IdempotencyKey)
	b = appendTime(append(b, `,"emittedAt":"`...), r.EmittedAt)
	b = appendOptional(append(b, '"'), `,"emittedBy":`, r.EmittedBy)
	b = appendOptional(b, `,"causedBySignalId":`, r.CausedBySignalID)
	b = appendOptional(b, `,"parentEventId":`, r.ParentEventID)
	b = append(append(b, `,"contractVersion":"`...), r.Contract.String()...)
	b = strconv.AppendUint(append(b, `","runSeq":"`...), r.RunSeq, 10)
	b = appendTime(append(b, `","persistedAt":"`...), r.PersistedAt)
	b = appendHex(append(b, `","payloadDigest":"`...), r.PayloadDigest[:])
	b = appendHex(append(b, `","recordDigest":"`...), r.RecordDigest[:])
	b = appendHex(append(b, `","chainDigest":"`...), r.ChainDigest[:])
	b = appendNames(append(b, `","inherited":[`...), r.Absent, `"`, `,`)
	b = append(b, ']')
	b = appendOptional(b, `,"appendedBy":`, r.AppendedBy.Name)
	b = appendOptional(b, `,"appendedByTokenId":`, r.AppendedBy.TokenID)
	if r.Original.PersistedAt != 0 {
		b = append(appendTime(append(b, `,"original":{"persistedAt":"`...), r.Original.PersistedAt), '"')
		b = append(appendOptional(b, `,"source":`, r.Original.Source), '}')
	}
	if len(r.Extensions) > 0 {
		b = jsontext.AppendInLine(b, "extensions", r.Extensions)
	}
	return append(jsontext.AppendInLine(b, "payload", r.Payload), "}\n"...)
}

func appendOptional(b []byte, member, text string) []byte {
	if text == "" {
		return b
	}
	return jsontext.AppendQuoted(append(b, member...), text)
}
