package export

import (
	"bytes"
	"crypto/sha256"
	"io"
	"strconv"

	"runlog/audit/proof"
	"runlog/proto/contract"
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

// appendLine appends a record's line with its line feed. A call for each member took a tenth more
// time.
func appendLine(b []byte, r *Record) []byte {
	e, begin := (*contract.Recorded)(r), len(b)
	for i := range writtenMembers {
		m := &writtenMembers[i]
		switch f := &m.field; f.Kind {
		case contract.KindText:
			if text := *f.Text(e); text != "" || !f.Optional {
				b = jsontext.AppendQuoted(append(b, m.begin...), text)
			}
		case contract.KindObject:
			if object := *f.Object(e); len(object) > 0 || !f.Optional {
				b = jsontext.AppendInLine(b, m.name, object)
			}
		case contract.KindCount:
			b = strconv.AppendUint(append(b, m.begin...), uint64(*f.Count(e)), 10)
		case contract.KindNames:
			b = append(appendNames(append(append(b, m.begin...), '['), *f.Names(e), `"`, `,`), ']')
		case contract.KindSalt:
			b = append(appendHex(append(b, m.quoted...), f.Salt(e)[:]), '"')
		case contract.KindDigest:
			b = append(appendHex(append(b, m.quoted...), f.Digest(e)[:]), '"')
		default:
			if m.form == originalForm {
				b = appendOriginal(b, m.begin, &e.Original)
			} else {
				b = append(appendPlain(append(b, m.quoted...), f, e), '"')
			}
		}
	}
	b[begin] = '{'
	return append(b, "}\n"...)
}

func appendOriginal(b []byte, begin string, o *contract.Original) []byte {
	if o.PersistedAt == 0 {
		return b
	}
	b = append(appendTime(append(append(b, begin...), `{"persistedAt":"`...), o.PersistedAt), '"')
	if o.Source != "" {
		b = jsontext.AppendQuoted(append(b, `,"source":`...), o.Source)
	}
	return append(b, '}')
}
