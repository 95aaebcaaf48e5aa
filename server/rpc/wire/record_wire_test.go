package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"runlog/proto/contract/contracttest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// drawRecord draws a record in which any field may be absent.
func drawRecord(t *rapid.T) *storage.Record {
	texts := rapid.OneOf(rapid.Just(""), rapid.StringN(0, 200, -1))
	objects := rapid.Map(rapid.StringMatching(`[1-9][0-9]{0,300}`), func(digits string) []byte { return []byte(`{"a":` + digits + `}`) })
	r := &storage.Record{Recorded: *contracttest.Draw(t, texts, objects)}
	if rapid.Bool().Draw(t, "none") {
		r.Extensions = nil
	}
	return r
}

// TestAppendRecord: the wire form of a record is that of its message.
func TestAppendRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		form := rapid.SampledFrom([]runlogv1.PayloadForm_Form{runlogv1.PayloadForm_JSON, runlogv1.PayloadForm_STRUCT}).Draw(t, "form")
		m, err := Record(r, form)
		if err != nil {
			t.Fatal(err)
		}
		data, err := AppendRecord([]byte("before"), r, form)
		if err != nil || string(data[:6]) != "before" || len(data) != 6+proto.Size(m) {
			t.Fatalf("%d bytes, want 6 and %d: %v", len(data), proto.Size(m), err)
		}
		got := &runlogv1.EventRecord{}
		if err := proto.Unmarshal(data[6:], got); err != nil || !proto.Equal(got, m) {
			t.Errorf("%v\n got %v\nwant %v", err, got, m)
		}
	})
}
