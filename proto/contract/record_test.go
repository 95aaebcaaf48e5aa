package contract

import (
	"errors"
	"strings"
	"testing"
)

const recordLine = `{"eventId":"0190b5a4-3c2e-7d11-8a4f-1b2c3d4e5f60","eventType":"RunPaused","runId":"r","logicalAttemptId":1,` +
	`"emittedAt":"2026-02-11T10:31:00Z","runSeq":"17","persistedAt":"2026-02-11T10:31:00.123456789Z"}`

// TestParseRecord: what a record has beside its event is taken apart from it, on both contract
// lines, and what belongs to where it was read is dropped (APP-1, APP-5, APP-11, ENV-1).
func TestParseRecord(t *testing.T) {
	for name, more := range map[string]string{
		"2.x":               ``,
		"1.1":               `,"contractVersion":"1.1","draining":false`,
		"snake case":        `,"payload_salt":"01","payload_digest":"ab","record_digest":"cd","chain_digest":"ef"`,
		"by somebody known": `,"appended_by":"worker \u00e9","recordDigest":"cd","payloadDigest":"ab"`,
		"with a token":      `,"appendedBy":"worker \u00e9","appendedByTokenId":"7"`,
		"imported there":    `,"original":{"persistedAt":"1970-01-01T00:00:01Z","source":"worker"},"appendedBy":"worker \u00e9"`,
		"of another reader": `,"payloadDigest":"ab","recordDigest":"cd","chainDigest":"ef","original":null,"inherited":[]`,
	} {
		r, err := ParseRecord([]byte(strings.TrimSuffix(recordLine, "}") + more + "}"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r.RunSeq != 17 || r.PersistedAt != 1770805860123456789 || r.Event.EventType != "RunPaused" || r.Event.RunId != "r" {
			t.Errorf("%s: %+v", name, r)
		}
		if digests := strings.Contains(more, "cd"); digests != (r.PayloadDigest == "ab" && r.RecordDigest == "cd") {
			t.Errorf("%s: digests %q, %q", name, r.PayloadDigest, r.RecordDigest)
		}
		if salted := name == "snake case"; salted != (r.PayloadSalt == "01") {
			t.Errorf("%s: salt %q", name, r.PayloadSalt)
		}
		if by := strings.Contains(more, "worker"); by != (r.AppendedBy.Name == "worker \u00e9") {
			t.Errorf("%s: appendedBy %q", name, r.AppendedBy)
		}
		if token := name == "with a token"; token != (r.AppendedBy.TokenID == "7") {
			t.Errorf("%s: appendedBy %q", name, r.AppendedBy)
		}
		if there := name == "imported there"; there != (r.Original == Original{PersistedAt: 1e9, Source: "worker"}) {
			t.Errorf("%s: original %+v", name, r.Original)
		}
		if flat := `{"draining":false}`; name == "1.1" && string(r.Event.GetPayloadJson()) != flat {
			t.Errorf("payload %s, want %s", r.Event.GetPayloadJson(), flat)
		}
	}
	r, err := ParseRecord([]byte(strings.TrimSuffix(recordLine, "}") + `,"payloadJson":"ewogIH0g"}`))
	if err != nil || string(r.Event.GetPayloadJson()) != "{\n  } " {
		t.Errorf("payload %q, %v", r.Event.GetPayloadJson(), err)
	}
	r, err = ParseRecord([]byte(strings.TrimSuffix(recordLine, "}") +
		`,"tenantId":"t","projectId":"p","environmentId":"e","planId":"a","planVersion":"1","inherited":["tenantId","planVersion"]}`))
	if err != nil || r.Event.TenantId != "" || r.Event.ProjectId != "p" || r.Event.EnvironmentId != "e" || r.Event.PlanId != "a" || r.Event.PlanVersion != "" {
		t.Errorf("what was inherited: %+v, %v", r.Event, err)
	}
}

func TestParseRecordRefusals(t *testing.T) {
	change := func(from, to string) string { return strings.Replace(recordLine, from, to, 1) }
	for name, test := range map[string]struct{ line, field string }{
		"no JSON":               {`{"runSeq":1`, ""},
		"no runSeq":             {change(`"runSeq":"17",`, ""), "runSeq"},
		"no persistedAt":        {change(`,"persistedAt":"2026-02-11T10:31:00.123456789Z"`, ""), "persistedAt"},
		"no eventId":            {change(`"eventId":"0190b5a4-3c2e-7d11-8a4f-1b2c3d4e5f60",`, ""), "eventId"},
		"runSeq 0":              {change(`"17"`, `0`), "runSeq"},
		"runSeq below 0":        {change(`"17"`, `-1`), "runSeq"},
		"runSeq of no room":     {change(`"17"`, `9007194959773696`), "runSeq"},
		"runSeq twice":          {change(`"17"`, `17,"run_seq":17`), "runSeq"},
		"runSeq of a kind":      {change(`"17"`, `[17]`), "runSeq"},
		"before 1970":           {change(`"2026-02-11T10:31:00.123456789Z"`, `"1969-12-31T23:59:59.9Z"`), "persistedAt"},
		"after 2262":            {change(`"2026-02-11T10:31:00.123456789Z"`, `"2262-04-11T23:47:16.9Z"`), "persistedAt"},
		"a date":                {change(`"2026-02-11T10:31:00.123456789Z"`, `"2026-02-11"`), "persistedAt"},
		"inherits a step":       {change(`"runSeq"`, `"inherited":["stepId"],"runSeq"`), "inherited"},
		"inherits no list":      {change(`"runSeq"`, `"inherited":"tenantId","runSeq"`), "inherited"},
		"a digest of a kind":    {change(`"runSeq"`, `"recordDigest":7,"runSeq"`), "recordDigest"},
		"an identity of a kind": {change(`"runSeq"`, `"appendedBy":7,"runSeq"`), "appendedBy"},
		"an endless identity":   {change(`"runSeq"`, `"appendedBy":"`+strings.Repeat("x", 257)+`","runSeq"`), "appendedBy"},
		"a token of a kind":     {change(`"runSeq"`, `"appendedByTokenId":7,"runSeq"`), "appendedByTokenId"},
		"two tokens":            {change(`"runSeq"`, `"appendedByTokenId":"7","appended_by_token_id":"7","runSeq"`), "appendedByTokenId"},
		"a control character":   {change(`"runSeq"`, `"appendedBy":"a\u0007","runSeq"`), "appendedBy"},
		"no original":           {change(`"runSeq"`, `"original":7,"runSeq"`), "original"},
		"an original's time":    {change(`"runSeq"`, `"original":{"persistedAt":"noon"},"runSeq"`), "original"},
		"an original's more":    {change(`"runSeq"`, `"original":{"offset":7},"runSeq"`), "original"},
		"two payloads":          {change(`"runSeq"`, `"payload":{},"payloadJson":"e30=","runSeq"`), "payloadJson"},
		"no base64":             {change(`"runSeq"`, `"payloadJson":"e","runSeq"`), "payloadJson"},
		"bytes of no text":      {change(`"runSeq"`, `"payloadJson":{},"runSeq"`), "payloadJson"},
		"a stranger":            {change(`"runSeq"`, `"offset":7,"runSeq"`), "offset"},
	} {
		_, err := ParseRecord([]byte(test.line))
		own, ok := errors.AsType[*Error](err)
		if !ok || len(own.Violations) == 0 || own.Violations[0].Field != test.field {
			t.Errorf("%s: %v, want field %q", name, err, test.field)
		}
	}
}

// FuzzParseRecord: what is taken has all that an import needs, whatever the line.
func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(recordLine))
	f.Add([]byte(`{"contractVersion":"1.1","eventType":"RunPaused","runId":"r","eventId":"x","runSeq":1,"persistedAt":"2026-02-11T10:31:00Z","inherited":["tenantId"],"draining":true}`))
	f.Add([]byte(`{"run_seq":"9007194959773695","persisted_at":"1970-01-01T00:00:00.000000001Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ParseRecord(line)
		if err != nil {
			if own, ok := errors.AsType[*Error](err); !ok || len(own.Violations) == 0 {
				t.Fatalf("an error that names nothing: %v", err)
			}
			return
		}
		if r.RunSeq == 0 || r.RunSeq+1 == 0 || r.PersistedAt <= 0 || r.Event.GetEventId() == "" {
			t.Fatalf("took %+v", r)
		}
		if _, bad := Validate(r.Event, Options{RunID: "r"}); len(bad) > 0 && bad[0].Description == "" {
			t.Fatalf("a violation that says nothing: %+v", bad)
		}
	})
}
