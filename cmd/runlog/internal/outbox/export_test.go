package outbox

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestEventLineENV8: a line is read as the event that it was made of, with the bytes of its payload
// and extensions.
func TestEventLineENV8(t *testing.T) {
	t.Parallel()
	texts := rapid.SampledFrom([]string{`{}`, `{"n":9007199254740993,"m":1.10}`, ` {"b" :1}`, "{\n}", `{"a":"\u0061 <&>"}`, `{"a":1, "a":2}`})
	rapid.Check(t, func(t *rapid.T) {
		e := &runlogv1.EventWrite{
			EventId: rapid.SampledFrom([]string{"", "01234567-89ab-cdef-0123-456789abcdef"}).Draw(t, "id"), EventType: "StepStarted",
			RunId: rapid.SampledFrom([]string{"", "run"}).Draw(t, "run"), TenantId: rapid.String().Draw(t, "tenant"), StepId: "s",
			LogicalAttemptId: rapid.Uint32().Draw(t, "attempt"), IdempotencyKey: "k\"\\",
			EmittedAt:       &timestamppb.Timestamp{Seconds: rapid.Int64Range(0, 4e9).Draw(t, "s"), Nanos: rapid.Int32Range(0, 999_999_999).Draw(t, "ns")},
			ContractVersion: rapid.SampledFrom([]string{"", "2.0.0", "1.1"}).Draw(t, "version"),
		}
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 1:
			e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(texts.Draw(t, "payload"))}
		case 2:
			s, err := structpb.NewStruct(map[string]any{"n": 1.5, "list": []any{"a", nil}})
			if err != nil {
				t.Fatal(err)
			}
			e.PayloadForm = &runlogv1.EventWrite_Payload{Payload: s}
		}
		if rapid.Bool().Draw(t, "extended") {
			e.ExtensionsJson = []byte(texts.Draw(t, "extensions"))
		}
		line, err := eventLine("run", e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := contract.ParseEvent(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		want := proto.CloneOf(e)
		want.RunId = "run"
		if s := want.GetPayload(); s != nil {
			// It comes back as text. The server stores both as the same canonical JSON.
			var back structpb.Struct
			if err := back.UnmarshalJSON(got.GetPayloadJson()); err != nil || !proto.Equal(&back, s) {
				t.Fatalf("%s: %v", line, err)
			}
			want.PayloadForm = got.PayloadForm
		}
		if !proto.Equal(got, want) {
			t.Fatalf("%s\nreads as %v\nwant %v", line, got, want)
		}
	})
}
