package contract

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// envelopeValues are values of the envelope's members in JSON, good and bad ones. What the schema
// cannot say, or the server takes beyond it, is left to TestENV1SchemaOfTheEnvelopeIsNarrower.
var envelopeValues = map[string][]string{
	"eventId":          {`"018f4e7a-1c2b-7def-8123-456789abcdef"`, `"018F4E7A-1C2B-7DEF-8123-456789ABCDEF"`, `"018f4e7a"`, `7`},
	"eventType":        {`"StepFailed"`, `"StepAttested"`, `"RunStarted"`, `"RunPaused"`, `"SignalAccepted"`, `"Custom"`, `""`, `"a|b"`, `[]`},
	"runId":            {`"run-1"`, `"é\u2028"`, `""`, `"a|b"`, `"\u0000"`, `"\u009f"`, `{}`, `"a b"`, `" a"`, `"a\u00a0"`, `"\u2003"`, `"\u3000a"`, `"a\u200b"`},
	"tenantId":         {`"t"`, `"a|b"`, `"\n"`, `1`},
	"projectId":        {`"p"`, `true`},
	"environmentId":    {`"e"`, `[]`},
	"planId":           {`"plan"`, `"|"`},
	"planVersion":      {`"1"`, `"1|2"`},
	"stepId":           {`"build"`, `"a|b"`},
	"logicalAttemptId": {`1`, `2`, `4294967295`, `"7"`, `0`, `-1`, `4294967296`, `"0"`, `"x"`, `1.5`, `"99999999999"`},
	"engineAttemptId":  {`1`, `"12"`, `0`, `[]`},
	"idempotencyKey":   {`"pause-run-1"`, `"a b~"`, `"é"`, `"` + strings.Repeat("k", 129) + `"`, `1`},
	"emittedAt": {`"2026-02-11T10:30:00Z"`, `"2026-02-11T10:30:00.123456789+05:30"`, `"2026-02-11t10:30:00z"`, `"2026-02-11T10:30:60Z"`,
		`"2026-02-30T10:30:00Z"`, `"2026-02-11T10:30:00.1234567890Z"`, `"2026-02-11 10:30:00Z"`, `1770805800`, `""`},
	"emittedBy":        {`"engine"`, `""`, `"\u007f"`, `1`},
	"causedBySignalId": {`"sig|1"`, `"\u0085"`},
	"parentEventId":    {`"x"`, `7`},
	"payload": {`{}`, `{"outcome":"FAIL"}`, `{"error":{"message":"m"}}`, `{"error":{}}`, `{"outcome":1}`, `[]`, `"x"`,
		strings.TrimSuffix(flatPayload, "}") + `,"outcome":"FAIL"}`, `{"signalId":"s"}`, `{"signalId":""}`, `{"signalId":7}`},
	"occurredAt": {`"2026-02-11T10:30:00Z"`},
	"note":       {`1`},
	"extensions": {`{}`, `{"a":{"b":[1.10]}}`, `[]`, `"x"`, `7`},
}

// flatPayload is the payload of the 1.1 RunStarted.
const flatPayload = `{"status":"RUNNING","engineRunRef":"r","engineType":"mock","startedAt":"2026-02-11T10:30:00Z",` +
	`"planRef":{"uri":"u","sha256":"s","schemaVersion":"1","planId":"p","planVersion":"1"},"context":{"tenantId":"t","projectId":"p","environmentId":"e"}}`

// The schemas of the envelope, with those of the payloads that they refer to, take what the gate
// takes, in both shapes of 1.1.
func TestENV1SchemaOfTheEnvelopeAgreesWithTheGate(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	const texts = 4000
	valid := 0
	for n := range texts {
		text, line := makeEnvelope(random, Line(n%2))
		want, at := judged(line, "EventWrite", text)
		var bad []Violation
		w, err := ParseEvent(text)
		if err == nil {
			_, bad = Validate(w, Options{OpaqueKeys: true})
		}
		if got := err == nil && len(bad) == 0; got != want {
			t.Fatalf("%s: the gate takes it: %v (%v %v), the schema: %v %v", text, got, err, bad, want, at)
		}
		if want {
			valid++
		}
	}
	if valid < texts/10 || valid > texts*9/10 {
		t.Errorf("%d of %d valid, which shows little", valid, texts)
	}
}

// makeEnvelope makes an event in which a few members are not the usual ones.
func makeEnvelope(random *rand.Rand, line Line) ([]byte, Line) {
	members := make(map[string]json.RawMessage)
	for _, name := range []string{"eventType", "runId", "tenantId", "projectId", "environmentId", "planId", "planVersion", "logicalAttemptId", "engineAttemptId", "emittedAt"} {
		members[name] = json.RawMessage(envelopeValues[name][0])
	}
	members["contractVersion"] = json.RawMessage(`"` + line.String() + `"`)
	members["eventType"] = json.RawMessage(envelopeValues["eventType"][random.IntN(6)])
	if ScopeOf(strings.Trim(string(members["eventType"]), `"`)) == ScopeStep {
		members["stepId"] = json.RawMessage(`"build"`)
	}
	flat := line == Line11 && random.IntN(2) == 0
	switch {
	case flat:
		for _, part := range []string{flatPayload, `{"outcome":"SUCCESS"}`} {
			if random.IntN(4) > 0 {
				json.Unmarshal([]byte(part), &members)
			}
		}
	case random.IntN(4) > 0:
		members["payload"] = json.RawMessage(strings.TrimSuffix(flatPayload, "}") + `,"outcome":"FAIL"}`)
	}
	for range random.IntN(4) {
		var names []string
		for name := range envelopeValues {
			names = append(names, name)
		}
		name := names[random.IntN(len(names))]
		values := envelopeValues[name]
		switch random.IntN(3) {
		case 0:
			delete(members, name)
		case 1:
			members[name] = json.RawMessage(values[random.IntN(len(values))])
			if strings.Trim(string(members[name]), `"`) == "0" {
				delete(members, name) // An attempt of 0 is one that was left out.
			}
		default:
			members[name] = json.RawMessage(values[0])
		}
	}
	if random.IntN(4) == 0 {
		delete(members, "logicalAttemptId")
	}
	if flat {
		// One shape or the other: both at once is what the schema leaves out.
		delete(members, "payload")
	} else if line == Line11 {
		delete(members, "note")
		delete(members, "occurredAt")
		if members["payload"] == nil && random.IntN(2) == 0 {
			members["error"] = json.RawMessage(`{"message":1}`)
		}
	}
	text, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return text, line
}

// What the server takes and the schema does not: other spellings. What the schema takes and the
// server does not: what JSON Schema cannot count.
func TestENV1SchemaOfTheEnvelopeIsNarrower(t *testing.T) {
	base := strings.TrimSuffix(string(eventLine(t, Line2, RunPaused, `{}`, false)), "}")
	for name, c := range map[string]struct {
		more           string
		server, schema bool
	}{
		"as it is":               {``, true, true},
		"snake case":             {`,"parent_event_id":"x"`, true, false},
		"null is absent":         {`,"parentEventId":null`, true, false},
		"an empty key is absent": {`,"idempotencyKey":""`, true, false},
		"256 characters":         {`,"parentEventId":"` + strings.Repeat("é", 256) + `"`, false, true},
		"key of another event":   {`,"idempotencyKey":"` + strings.Repeat("0", 64) + `"`, false, true},
	} {
		text := []byte(base + c.more + "}")
		if valid, at := judged(Line2, "EventWrite", text); valid != c.schema {
			t.Errorf("%s: the schema takes it: %v %v", name, valid, at)
		}
		var bad []Violation
		w, err := ParseEvent(text)
		if err == nil {
			_, bad = Validate(w, Options{})
		}
		if got := err == nil && len(bad) == 0; got != c.server {
			t.Errorf("%s: the gate takes it: %v %v %v", name, got, err, bad)
		}
	}
}

// A record fits its schema in the JSON in which it is read.
func TestAPP11SchemaOfTheRecord(t *testing.T) {
	payload, _ := structpb.NewStruct(map[string]any{"draining": true})
	digest := strings.Repeat("0f", 32)
	record := &runlogv1.EventRecord{
		EventId: "018f4e7a-1c2b-7def-8123-456789abcdef", EventType: RunPaused, RunId: "r", TenantId: "t", ProjectId: "p", EnvironmentId: "e",
		PlanId: "p", PlanVersion: "1", LogicalAttemptId: 1, EngineAttemptId: 1, IdempotencyKey: "k", EmittedAt: &timestamppb.Timestamp{}, ContractVersion: "2.0.0",
		PayloadForm: &runlogv1.EventRecord_Payload{Payload: payload}, RunSeq: 1 << 63, PersistedAt: &timestamppb.Timestamp{Seconds: 1, Nanos: 1},
		PayloadSalt: digest[:32], PayloadDigest: digest, RecordDigest: digest, ChainDigest: digest,
	}
	check := func(line Line, want bool) {
		t.Helper()
		text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if valid, at := judged(line, "EventRecord", text); valid != want {
			t.Errorf("%s: %s: valid %v at %v", line, text, valid, at)
		}
	}
	check(Line2, true)
	check(Line11, false)
	record.ContractVersion, record.PlanId, record.StepId, record.Inherited = "1.1", "", new("s"), []string{"tenantId", "planVersion"}
	record.PayloadForm = &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte("{}")}
	check(Line11, true)
	record.Inherited = []string{"stepId"}
	check(Line11, false)
	record.Inherited, record.RunSeq = nil, 0
	check(Line11, false)
}
