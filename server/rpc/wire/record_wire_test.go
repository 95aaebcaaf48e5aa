package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// drawRecord draws a record in which any field may be absent.
func drawRecord(t *rapid.T) *storage.Record {
	text := func(name string) string {
		return rapid.OneOf(rapid.Just(""), rapid.StringN(0, 200, -1)).Draw(t, name)
	}
	digest := func(name string) contract.Digest {
		return contract.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, name))
	}
	when := func(name string) int64 {
		return rapid.OneOf(rapid.Just(int64(0)), rapid.Just(int64(1e9)), rapid.Int64()).Draw(t, name)
	}
	r := &storage.Record{Recorded: contract.Recorded{
		Event: contract.Event{
			EventID: contract.EventID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
			Type:    text("type"), RunID: text("run"), TenantID: text("tenant"), ProjectID: text("project"), EnvironmentID: text("environment"),
			PlanID: text("plan"), PlanVersion: text("version"), Absent: contract.Absent(rapid.Byte().Draw(t, "absent")),
			StepID: text("step"), LogicalAttemptID: rapid.Uint32().Draw(t, "logical"), EngineAttemptID: rapid.Uint32().Draw(t, "engine"),
			IdempotencyKey: text("key"), EmittedAt: when("emitted"), EmittedBy: text("by"), CausedBySignalID: text("cause"),
			ParentEventID: text("parent"), Contract: rapid.SampledFrom([]contract.Line{contract.Line2, contract.Line11}).Draw(t, "contract"),
			Payload: []byte(`{"a":` + rapid.StringMatching(`[1-9][0-9]{0,300}`).Draw(t, "payload") + `}`), Extensions: []byte(text("extensions")),
		},
		RunSeq: rapid.Uint64().Draw(t, "seq"), PersistedAt: when("persisted"), AppendedBy: contract.Author{Name: text("appended by"), TokenID: text("token")},
		Original:      contract.Original{PersistedAt: when("original"), Source: text("source")},
		PayloadDigest: digest("payload digest"), RecordDigest: digest("record digest"), ChainDigest: digest("chain digest"),
	}}
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
