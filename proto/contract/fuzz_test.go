package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// checkError requires what every refusal promises.
func checkError(t *testing.T, err error) {
	var e *Error
	if !errors.As(err, &e) || len(e.Violations) == 0 || len(e.Violations) > MaxViolations {
		t.Fatalf("%T %v", err, err)
	}
	for _, v := range e.Violations {
		if !utf8.ValidString(v.Field) || !utf8.ValidString(v.Description) || v.Reason == "" {
			t.Fatalf("%+v", v)
		}
	}
}

// FuzzParseEvent: what is read can be sent, keeps the bytes of payload and extensions, and means
// what proto-JSON, the reference for envelope fields, makes of it.
func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(flatRunStarted))
	f.Add([]byte(envelopeLine))
	f.Add([]byte(`{"extensions":{"a":[1.10]},"logicalAttemptId":10e-1,"engineAttemptId":"2.0","payloadJson":"e30"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var reference runlogv1.EventWrite
		refused := protojson.Unmarshal(line, &reference)
		w, err := ParseEvent(line)
		if err != nil {
			checkError(t, err)
			// Times are those of RFC 3339, payloads have a greatest depth.
			if refused == nil && !strings.Contains(err.Error(), "emittedAt must be a time") && !strings.Contains(err.Error(), jsontext.FaultDepth.String()) {
				t.Fatalf("proto-JSON takes what ParseEvent refuses: %v", err)
			}
			return
		}
		if _, err := proto.Marshal(w); err != nil {
			t.Fatalf("cannot be sent: %v", err)
		}
		for _, object := range [][]byte{w.GetPayloadJson(), w.ExtensionsJson} {
			encoded := bytes.Contains(bytes.ToLower(line), []byte("json")) || bytes.Contains(line, []byte(`\u`))
			if !bytes.Contains(line, object) && w.GetContractVersion() != "1.1" && !encoded {
				t.Fatalf("%s is not the text of a member", object)
			}
		}
		if refused == nil {
			// Payloads as JSON text and as a Struct are two forms.
			reference.PayloadForm, w.PayloadForm = nil, nil
			if !proto.Equal(&reference, w) {
				t.Fatalf("proto-JSON reads %v, ParseEvent %v", &reference, w)
			}
		}
	})
}

func FuzzValidate(f *testing.F) {
	for _, w := range []*runlogv1.EventWrite{benchEvent(), envelopeWant(), {}} {
		wire, err := proto.Marshal(w)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, "run_2026-02-11_abc123", uint8(0))
		f.Add(wire, "", uint8(3))
	}
	f.Fuzz(func(t *testing.T, wire []byte, run string, policy uint8) {
		w := &runlogv1.EventWrite{}
		if proto.Unmarshal(wire, w) != nil {
			t.Skip()
		}
		o := Options{
			RunID: run, RefuseUnknownTypes: policy&1 != 0, OpaqueKeys: policy&2 != 0, MaxPayloadBytes: int(policy) << 4,
			NewEventID: func() EventID { return EventID{15: 1} },
		}
		e, bad := Validate(w, o)
		if len(bad) > 0 {
			checkError(t, NewError(bad))
			return
		}
		checkEvent(t, &e, o)
	})
}

// checkEvent requires what the inner rooms trust in an event.
func checkEvent(t *testing.T, e *Event, o Options) {
	if !json.Valid(e.Payload) || len(e.Payload) > o.maxPayloadBytes() || bytes.TrimLeft(e.Payload, " \t\r\n")[0] != '{' {
		t.Fatalf("payload %q", e.Payload)
	}
	if e.Type == "" || e.RunID == "" || e.LogicalAttemptID == 0 || e.EngineAttemptID == 0 || !isPrintable(e.IdempotencyKey) || e.IdempotencyKey == "" {
		t.Fatalf("incomplete: %+v", e)
	}
	if e.KeyDerived != (e.Absent&AbsentPlanVersion == 0 && e.IdempotencyKey == keyVectorOf(*e)) {
		t.Fatalf("key %s, derived %v", e.IdempotencyKey, e.KeyDerived)
	}
	if (e.Absent != 0 || !e.KeyDerived && !o.OpaqueKeys) && e.Contract != Line11 {
		t.Fatalf("a 2.x event is sparse or has a key of its own: %+v", e)
	}
	for i, text := range []string{e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanID, e.PlanVersion} {
		if (text == "") != (e.Absent&(1<<i) != 0) {
			t.Fatalf("absent %b: %+v", e.Absent, e)
		}
	}
	if _, err := decodeCanonical(e.AppendCanonical(nil)); err != nil {
		t.Fatal(err)
	}
	if !SameContent(e, e) {
		t.Fatal("an event differs from itself")
	}
	// What it says, said again, is the same event.
	again, bad := Validate(&runlogv1.EventWrite{
		EventId: e.EventID.String(), EventType: e.Type, RunId: e.RunID, TenantId: e.TenantID, ProjectId: e.ProjectID, EnvironmentId: e.EnvironmentID,
		PlanId: e.PlanID, PlanVersion: e.PlanVersion, StepId: e.StepID, LogicalAttemptId: e.LogicalAttemptID, EngineAttemptId: e.EngineAttemptID,
		IdempotencyKey: e.IdempotencyKey, EmittedAt: &timestamppb.Timestamp{Seconds: floorDiv(e.EmittedAt), Nanos: int32(e.EmittedAt - floorDiv(e.EmittedAt)*1e9)},
		EmittedBy: e.EmittedBy, CausedBySignalId: e.CausedBySignalID, ParentEventId: e.ParentEventID, ContractVersion: e.Contract.String(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: e.Payload},
	}, o)
	if len(bad) > 0 || !bytes.Equal(again.AppendCanonical(nil), e.AppendCanonical(nil)) || again.ContentDigest() != e.ContentDigest() {
		t.Fatalf("said again: %+v, %v", again, bad)
	}
}

func floorDiv(nanos int64) int64 {
	s := nanos / 1e9
	if nanos%1e9 < 0 {
		s--
	}
	return s
}

func FuzzSameContent(f *testing.F) {
	f.Add([]byte(`{"a":1.0,"b":["é",{}]}`), []byte(`{"b":["\u00e9",{}],"a":10e-1}`))
	f.Add([]byte(`{"a":1,"a":[null,true]}`), []byte(`{"a":[null,false]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, y := &Event{Payload: a}, &Event{Payload: b}
		same := SameContent(x, y)
		if same != SameContent(y, x) || !SameContent(x, x) {
			t.Fatal("no equivalence")
		}
		if !same && x.ContentDigest() == y.ContentDigest() {
			t.Fatal("diverged under one content digest")
		}
		if _, fault := jsontext.CheckObject(a, MaxDepth); fault != 0 {
			return
		}
		if _, fault := jsontext.CheckObject(b, MaxDepth); fault != 0 {
			return
		}
		checkAgainstReference(t, a, b)
		compact := &bytes.Buffer{}
		if json.Compact(compact, a) != nil || !SameContent(x, &Event{Payload: compact.Bytes()}) {
			t.Fatal("white space counts")
		}
	})
}
