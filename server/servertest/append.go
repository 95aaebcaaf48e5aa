package servertest

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	runlogv1 "runlog/proto/runlog/v1"
)

// WantResults compares the results of the events: n new, d duplicate, x diverged duplicate.
func WantResults(t testing.TB, what string, results []*runlogv1.AppendResult, want string) {
	t.Helper()
	var got strings.Builder
	for _, r := range results {
		switch {
		case r.Persisted && !r.Idempotent && !r.Diverged:
			got.WriteByte('n')
		case r.Idempotent && !r.Persisted && r.Diverged:
			got.WriteByte('x')
		case r.Idempotent && !r.Persisted:
			got.WriteByte('d')
		default:
			got.WriteByte('?')
		}
	}
	if got.String() != want {
		t.Errorf("%s: results are %q, want %q", what, &got, want)
	}
}

// SameStored wants two answers to name the same stored event (IDM-6).
func SameStored(t testing.TB, what string, got, want *runlogv1.AppendResult) {
	t.Helper()
	if got.EventId != want.EventId || got.RunSeq != want.RunSeq || !proto.Equal(got.PersistedAt, want.PersistedAt) {
		t.Errorf("%s: names %v, want %v", what, got, want)
	}
}

// HTTPEvent is a valid event as HTTP clients write it.
func HTTPEvent(stepID string) string {
	e := NewEvent("Noted", Step(stepID))
	e.PayloadForm = &runlogv1.EventWrite_Payload{Payload: &structpb.Struct{}}
	text, _ := protojson.Marshal(e)
	return string(text)
}
