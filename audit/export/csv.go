package export

import (
	"bytes"
	"io"
	"strings"

	"runlog/audit/proof"
	"runlog/proto/contract"
)

// manifestComment begins the last line of a CSV file.
const manifestComment = "# runlog manifest: "

// csvWriter writes a record a row (RFC 4180), rows ending in a line feed alone.
type csvWriter struct {
	out io.Writer
	buf []byte
}

func newCSVWriter(out io.Writer) *csvWriter {
	w := &csvWriter{out, make([]byte, 0, bufferBytes+bufferBytes/4)}
	w.buf = append(append(w.buf, strings.Join(columns, ",")...), '\n')
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
	e := (*contract.Recorded)(r)
	for i := range fields[:payloadColumn] {
		switch f := &fields[i]; f.Kind {
		case contract.KindText:
			b = appendCell(b, *f.Text(e))
		case contract.KindSalt:
			b = appendHex(b, f.Salt(e)[:])
		case contract.KindDigest:
			b = appendHex(b, f.Digest(e)[:])
		case contract.KindObject:
			b = appendCell(b, string(*f.Object(e)))
		case contract.KindNames:
			b = appendNames(b, *f.Names(e), "", " ")
		default:
			if i != originalAtColumn || e.Original.PersistedAt != 0 {
				b = appendPlain(b, f, e)
			}
		}
		b = append(b, ',')
	}
	b = append(b, '"')
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
