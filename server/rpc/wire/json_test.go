package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// FuzzNatural: an answer has the stored text of each payload and each extensions object, in its
// place, and is otherwise what protojson makes of the message. A line has no line break.
func FuzzNatural(f *testing.F) {
	f.Add([]byte(`{"n":9007199254740993,"m":1.10}`), []byte(`{"payloadJson":""}`), "x")
	f.Add([]byte("{ \"b\" : 1 ,\r\n \"a\":\"\\u00e9\" }"), []byte{}, `"payloadJson":""`)
	f.Add([]byte(" {} "), []byte("{\n}"), "")
	f.Fuzz(func(t *testing.T, payload, extensions []byte, step string) {
		if _, fault := jsontext.CheckObject(payload, contract.MaxDepth); fault != 0 {
			t.Skip()
		}
		if _, fault := jsontext.CheckObject(extensions, contract.MaxDepth); fault != 0 {
			extensions = nil
		}
		events := []*runlogv1.EventRecord{
			{EventId: "1", StepId: &step, PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: payload}, ExtensionsJson: extensions},
			{EventId: "2", PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(`{}`)}, ExtensionsJson: extensions},
		}
		for _, m := range []proto.Message{
			&runlogv1.ListEventsResponse{Events: events, LastSeq: 2},
			&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Events{Events: &runlogv1.EventBatch{Events: events}}},
		} {
			if _, err := proto.Marshal(m); err != nil {
				t.Skip() // The step is no text.
			}
			checkNatural(t, m, false)
			checkNatural(t, m, true)
		}
	})
}

// checkNatural compares the JSON of a message, with its objects put back into base64, with what
// protojson writes.
func checkNatural(t *testing.T, m proto.Message, line bool) {
	t.Helper()
	want, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	marshal := NewJSON().Marshal
	if line {
		marshal = NewJSON().MarshalLine
	}
	got, err := marshal(Natural{proto.CloneOf(m)})
	if err != nil {
		t.Fatal(err)
	}
	if line && bytes.ContainsAny(got, "\r\n") {
		t.Fatalf("no line: %s", got)
	}
	var records []*runlogv1.EventRecord
	switch m := m.(type) {
	case *runlogv1.ListEventsResponse:
		records = m.Events
	case *runlogv1.WatchRunResponse:
		records = m.GetEvents().Events
	}
	for _, r := range records {
		got = backToBase64(t, got, "payload", r.GetPayloadJson(), line)
		if r.ExtensionsJson != nil {
			got = backToBase64(t, got, "extensions", r.ExtensionsJson, line)
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, want); err != nil || !bytes.Equal(got, compact.Bytes()) {
		t.Fatalf("got\n%s\nwant\n%s (%v)", got, compact.Bytes(), err)
	}
}

func backToBase64(t *testing.T, text []byte, member string, object []byte, line bool) []byte {
	t.Helper()
	encoded := `"` + member + `Json":"` + base64.StdEncoding.EncodeToString(object) + `"`
	if line && !jsontext.FitsLine(object) {
		if !bytes.Contains(text, []byte(encoded)) {
			t.Fatalf("%s is not in %s", encoded, text)
		}
		return text
	}
	natural := append([]byte(`"`+member+`":`), object...)
	if !bytes.Contains(text, natural) {
		t.Fatalf("%s is not in %s", natural, text)
	}
	return bytes.Replace(text, natural, []byte(encoded), 1)
}

// TestOtherMessagesKeepTheirNamesENV8: only events are rewritten, and only if no form was asked
// for.
func TestOtherMessagesKeepTheirNamesENV8(t *testing.T) {
	object, err := structpb.NewStruct(map[string]any{"payloadJson": "", "n": 1.5})
	if err != nil {
		t.Fatal(err)
	}
	run := &runlogv1.Run{RunId: "r", Labels: map[string]string{"payloadJson": "", "extensionsJson": ""}}
	event := &runlogv1.EventRecord{PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(`{"a":1}`)}}
	for _, c := range []struct {
		v    any
		want string
	}{
		{Natural{&runlogv1.GetRunResponse{Run: run}}, `"labels":{"extensionsJson":"","payloadJson":""}`},
		{Natural{&runlogv1.ListEventsResponse{Events: []*runlogv1.EventRecord{{PayloadForm: &runlogv1.EventRecord_Payload{Payload: object}}}}}, `"payload":{"n":1.5,"payloadJson":""}`},
		{&runlogv1.ListEventsResponse{Events: []*runlogv1.EventRecord{event}}, `"payloadJson":"eyJhIjoxfQ=="`},
	} {
		got, err := NewJSON().Marshal(c.v)
		if err != nil || !bytes.Contains(got, []byte(c.want)) {
			t.Errorf("%s does not have %s: %v", got, c.want, err)
		}
	}
}
