package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"runlog/proto/contract"
)

// FuzzLine compares what is read of a line with what contract.ParseRecord reads of it, and with
// what the record is written as.
func FuzzLine(f *testing.F) {
	for _, r := range evidence() {
		f.Add(bytes.TrimSuffix(appendLine(nil, r), []byte("\n")))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var r, again Record
		if fault := parseLine(bytes.Clone(line), string(line), &r); fault != "" {
			return
		}
		if bytes.IndexByte(line, '\n') >= 0 || !utf8Texts(&r) {
			return // no line, or a string that is no JSON: no digest fits it
		}
		written := bytes.TrimSuffix(appendLine(nil, &r), []byte("\n"))
		if fault := parseLine(written, string(written), &again); fault != "" || !reflect.DeepEqual(r, again) {
			t.Fatalf("%q is read as\n%+v, and written and read again\n%+v (%s)", line, r, again, fault)
		}
		if !json.Valid(line) {
			return
		}
		want, err := contract.ParseRecord(line)
		if err != nil {
			return // limits of what can be imported
		}
		if want.RunSeq != r.RunSeq || want.PersistedAt != r.PersistedAt || !bytes.Equal(want.Event.GetPayloadJson(), r.Payload) ||
			want.Event.GetEventId() != r.EventID.String() || want.Event.GetRunId() != r.RunID || want.Event.GetEventType() != r.Type ||
			want.Event.GetStepId() != r.StepID || want.Event.GetEmittedBy() != r.EmittedBy || want.Event.GetIdempotencyKey() != r.IdempotencyKey ||
			want.Event.GetEmittedAt().AsTime().UnixNano() != r.EmittedAt || want.Event.GetLogicalAttemptId() != r.LogicalAttemptID ||
			want.AppendedBy != r.AppendedBy || want.PayloadDigest != r.PayloadDigest.String() || want.RecordDigest != r.RecordDigest.String() {
			t.Fatalf("%q is read as\n%+v, and by the contract as\n%+v", line, r, want)
		}
	})
}

// utf8Texts tells whether a record's texts are as JSON has them: control characters only where they
// were escaped, as they are not in what a mutated line has between its quotes.
func utf8Texts(r *Record) bool {
	return !strings.ContainsFunc(r.Type+r.RunID+r.StepID, func(c rune) bool { return c < ' ' })
}

// FuzzRow compares the cells that are read of a row with those that encoding/csv reads, and with
// what the record is written as.
func FuzzRow(f *testing.F) {
	for _, r := range evidence() {
		f.Add(bytes.TrimSuffix(appendRow(nil, r), []byte("\n")))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		var r, again Record
		if fault := parseRow(bytes.Clone(row), string(row), &r); fault != "" {
			return
		}
		written := bytes.TrimSuffix(appendRow(nil, &r), []byte("\n"))
		if fault := parseRow(bytes.Clone(written), string(written), &again); fault != "" || !reflect.DeepEqual(r, again) {
			t.Fatalf("%q is read as\n%+v, and written and read again\n%+v (%s)", row, r, again, fault)
		}
		if bytes.IndexByte(row, '\r') >= 0 || bytes.IndexByte(row, '\n') >= 0 {
			return // which encoding/csv does not keep
		}
		cells, err := csv.NewReader(bytes.NewReader(row)).Read()
		if err != nil || len(cells) != len(columns) || cells[payloadColumn] != string(r.Payload) || cells[columnOf("runId")] != r.RunID || cells[columnOf("stepId")] != r.StepID {
			t.Fatalf("%q is read as\n%+v, and by encoding/csv as %q, %v", row, r, cells, err)
		}
	})
}

// FuzzPieces: a text is cut into pieces that are it again, and none ends within a row.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("a,\"b\nc\"\nd\n"), uint8(3), true)
	f.Add([]byte("{}\n{}\n\n"), uint8(1), false)
	f.Fuzz(func(t *testing.T, text []byte, room uint8, quoted bool) {
		p := pieces{in: bytes.NewReader(text), quoted: quoted}
		var all []byte
		for {
			piece, err := p.next(make([]byte, 0, int(room)+1))
			if err != nil {
				break
			}
			if len(piece) == 0 || piece[len(piece)-1] != '\n' || quoted && bytes.Count(piece, quote)%2 != 0 {
				t.Fatalf("piece %q of %q", piece, text)
			}
			all = append(all, piece...)
		}
		whole := bytes.LastIndexByte(text, '\n') + 1
		if !bytes.HasPrefix(text, all) || !quoted && len(all) != whole {
			t.Fatalf("%q came out as %q", text, all)
		}
	})
}

// FuzzVerify: no file makes the verification fail, and one with the tests' signature and no fault
// has the records that were exported, or none.
func FuzzVerify(f *testing.F) {
	original := evidence()
	for _, format := range allFormats {
		f.Add(exported(f, format, original))
	}
	key := signer(f, 1).PublicKey()
	f.Fuzz(func(t *testing.T, file []byte) {
		format := Detect(file)
		if format == 0 {
			return
		}
		report := verified(t, format, file, key)
		if len(report.Faults) > 0 {
			return
		}
		got, _, err := readAll(format, file)
		// the corpus has a window without events
		if err != nil || len(got) > 0 && !slices.EqualFunc(got, original, sameButPlan) {
			t.Fatalf("verifies, and is not what was signed: %v", err)
		}
	})
}
