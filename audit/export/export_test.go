package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"google.golang.org/protobuf/encoding/protojson"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	rpcwire "runlog/server/rpc/wire"
	"runlog/storage"
)

var allFormats = []Format{JSONLines, CSV, Parquet}

func verified(t testing.TB, f Format, file []byte, keys ...string) *Report {
	t.Helper()
	report, err := Verify(t.Context(), f, bytes.NewReader(file), int64(len(file)), keys...)
	if err != nil {
		t.Fatal(err)
	}
	if report.Unsigned != nil { // which the tests take for a fault as any other
		report.Faults = append(report.Faults, report.Unsigned.Error())
	}
	return report
}

// readAll returns the records of a file, as its reader has them.
func readAll(f Format, file []byte) (records []*Record, manifest string, err error) {
	src, manifest, err := open(f, bytes.NewReader(file), int64(len(file)), "")
	for err == nil {
		b := &batch{raw: make([]byte, 0, 64)}
		if err = src.next(b); err != nil {
			break
		}
		src.parse(b)
		for i := range b.records {
			if fault := b.records[i].fault; fault != "" {
				return records, manifest, errors.New(fault)
			}
			records = append(records, &b.records[i].Record)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return records, manifest, err
}

// TestRoundTripAPP11: what is written is read again exactly, payloads byte for byte, in every
// format, and verifies.
func TestRoundTripAPP11(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := drawRecords(rt)
		for _, f := range allFormats {
			file := exported(t, f, want)
			got, manifest, err := readAll(f, file)
			if err != nil || manifest != manifestOf(t, signer(t, 1), want) {
				rt.Fatalf("%v: %v, manifest %q", f, err, manifest)
			}
			if !slices.EqualFunc(got, want, func(a, b *Record) bool { return reflect.DeepEqual(a, b) }) {
				rt.Fatalf("%v: got\n%+v\nwant\n%+v", f, deref(got), deref(want))
			}
			if report := verified(t, f, file, signer(t, 1).PublicKey()); len(report.Faults) > 0 || report.Events != uint64(len(want)) {
				rt.Fatalf("%v: %+v", f, report)
			}
			if Detect(file[:min(len(file), 512)]) != f {
				rt.Fatalf("%v is taken for another format", f)
			}
		}
	})
}

func deref(records []*Record) (out []Record) {
	for _, r := range records {
		out = append(out, *r)
	}
	return out
}

// wire is a record as a node sends it.
func wire(r *Record) *runlogv1.EventRecord {
	m, err := rpcwire.Record(&storage.Record{Recorded: contract.Recorded(*r)}, runlogv1.PayloadForm_JSON)
	if err != nil {
		panic(err)
	}
	return m
}

// TestTake: a record comes from the wire as it is, and what no node can have stored is refused.
func TestTake(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		for _, r := range drawRecords(rt) {
			var got Record
			if err := got.Take(wire(r)); err != nil || !reflect.DeepEqual(&got, r) {
				rt.Fatalf("%v: got\n%+v\nwant\n%+v", err, got, *r)
			}
		}
	})
	for name, change := range map[string]func(*runlogv1.EventRecord){
		"no id":               func(m *runlogv1.EventRecord) { m.EventId = "" },
		"no contract":         func(m *runlogv1.EventRecord) { m.ContractVersion = "" },
		"another contract":    func(m *runlogv1.EventRecord) { m.ContractVersion = "3" },
		"no payload":          func(m *runlogv1.EventRecord) { m.PayloadForm = nil },
		"an empty payload":    func(m *runlogv1.EventRecord) { m.PayloadForm = &runlogv1.EventRecord_PayloadJson{} },
		"a short digest":      func(m *runlogv1.EventRecord) { m.ChainDigest = m.ChainDigest[1:] },
		"an upper-case digit": func(m *runlogv1.EventRecord) { m.RecordDigest = strings.Repeat("A", 64) },
		"no stamp":            func(m *runlogv1.EventRecord) { m.PersistedAt = nil },
		"no time":             func(m *runlogv1.EventRecord) { m.EmittedAt = nil },
		"a strange heir":      func(m *runlogv1.EventRecord) { m.Inherited = []string{"runId"} },
		"an heir twice":       func(m *runlogv1.EventRecord) { m.Inherited = []string{"planId", "planId"} },
		"no runSeq":           func(m *runlogv1.EventRecord) { m.RunSeq = 0 },
		"a runSeq of no room": func(m *runlogv1.EventRecord) { m.RunSeq = 1 << 63 },
		"no attempt":          func(m *runlogv1.EventRecord) { m.LogicalAttemptId = 0 },
	} {
		m := wire(typical(1)[0])
		change(m)
		if err := new(Record).Take(m); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLineIsProtoJSON: a line is what proto-JSON makes of the record, with the extensions and the
// payload last, as they were stored.
func TestLineIsProtoJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		for _, r := range drawRecords(rt) {
			m := wire(r)
			m.PayloadForm, m.ExtensionsJson = nil, nil
			text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
			if err != nil {
				rt.Fatal(err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, text); err != nil {
				rt.Fatal(err)
			}
			want.Truncate(want.Len() - 1)
			line := appendLine(nil, r)
			if !bytes.HasPrefix(line, want.Bytes()) {
				rt.Fatalf("got\n%s\nwant\n%s", line, want.Bytes())
			}
			if !json.Valid(line) {
				rt.Fatalf("no JSON: %s", line)
			}
		}
	})
}

// TestParseRecordReadsLines: a line is a record that can be imported, whatever its payload looks
// like.
func TestParseRecordReadsLines(t *testing.T) {
	records := typical(3)
	records[1].Payload = []byte("{\r\n}")
	records[2].Payload = []byte(" {} ")
	for _, r := range records {
		got, err := contract.ParseRecord(bytes.TrimSuffix(appendLine(nil, r), []byte("\n")))
		if err != nil || got.RunSeq != r.RunSeq || got.PersistedAt != r.PersistedAt || !bytes.Equal(got.Event.GetPayloadJson(), r.Payload) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

// TestTextsForOthers: what other programs take for the end of a line is never left bare in a row or
// a line.
func TestTextsForOthers(t *testing.T) {
	for text, want := range map[string]string{"a": "a", "a b": "a b", "a\rb": "\"a\rb\"", "a\nb": "\"a\nb\"", "a,b": `"a,b"`, `a"b`: `"a""b"`, "": ""} {
		if got := string(appendCell(nil, text)); got != want {
			t.Errorf("cell %q is %q, want %q", text, got, want)
		}
	}
	for _, payload := range []string{"{\r}", "{\n}", "{\r\n}", " {}", "{} "} {
		r := typical(1)[0]
		r.Payload = []byte(payload)
		if line := string(appendLine(nil, r)); strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\r\n") || !strings.Contains(line, `"payloadJson":"`) {
			t.Errorf("payload %q is in the line %q", payload, line)
		}
	}
}

// TestTimes: a time is written in one way, and read in that way alone.
func TestTimes(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "1970-01-01T00:00:00Z", -1: "1969-12-31T23:59:59.999999999Z", 1e6: "1970-01-01T00:00:00.001Z", 1e3: "1970-01-01T00:00:00.000001Z", 1e8: "1970-01-01T00:00:00.100Z",
		1 << 62: "2116-02-20T23:53:38.427387904Z", math.MaxInt64: "2262-04-11T23:47:16.854775807Z", math.MinInt64: "1677-09-21T00:12:43.145224192Z",
	} {
		var back int64
		if got := string(appendTime(nil, ns)); got != want || !parseTime(&back, got) || back != ns {
			t.Errorf("%d is %s, and that %d; want %s", ns, got, back, want)
		}
	}
	for _, text := range []string{
		"", "Z", "2026-02-11T10:30:00", "2026-02-11t10:30:00Z", "2026-02-11 10:30:00Z", "2026-02-11T10:30:00z", "2026-02-11T10:30:00+00:00", "2026-02-11T10:30:00.5Z",
		"2026-02-11T10:30:00.500000Z", "2026-02-11T10:30:00.000Z", "2026-02-11T10:30:00.123456000Z", "2026-02-11T10:30:00.1234567890Z", "2026-02-11T10:30:00,123Z", "2026-02-30T10:30:00Z",
		"2026-13-01T10:30:00Z", "2026-00-01T10:30:00Z", "2026-02-00T10:30:00Z", "2026-02-11T24:00:00Z", "2026-02-11T10:60:00Z", "2026-02-11T10:30:60Z", "2026-02-11T1+:30:00Z",
		"2262-04-11T23:47:16.854775808Z", "1677-09-21T00:12:43.145224191Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-11T10:30:00.Z", "2026-02-11T10:30:00.12ZZ",
	} {
		var ns int64
		if parseTime(&ns, text) {
			t.Errorf("%q is taken for %s", text, appendTime(nil, ns))
		}
	}
}

// TestUnknownParquet: what exports do not have is refused in Parquet too.
func TestUnknownParquet(t *testing.T) {
	records := evidence()
	manifest := manifestOf(t, signer(t, 1), records)
	rows := rowsOf(records)
	type more struct {
		parquetRow
		Colour string `parquet:"colour"`
	}
	type other struct {
		EventID int64 `parquet:"event_id"`
	}
	wider := make([]more, len(rows))
	for i := range rows {
		wider[i].parquetRow = rows[i]
	}
	for what, c := range map[string]struct {
		file []byte
		want string
	}{
		"statistics":    {parquetFile(t, rows, manifestKey, manifest), "its header has statistics"},
		"metadata more": {parquetFile(t, rows, manifestKey, manifest, "colour", "blue"), `its metadata has "colour"`},
		"no manifest":   {parquetFile(t, rows), "its metadata has no manifest"},
		"a column more": {parquetFile(t, wider, manifestKey, manifest), `it has a column "colour"`},
		"other columns": {parquetFile(t, []other{{1}}, manifestKey, manifest), `column "event_id" is not`},
	} {
		found(t, what, verified(t, Parquet, c.file), c.want)
	}
}

func parquetFile[T any](t *testing.T, rows []T, metadata ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[T](&out)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(metadata); i += 2 {
		w.SetKeyValueMetadata(metadata[i], metadata[i+1])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
