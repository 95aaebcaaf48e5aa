package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// hostile has every character that JSON, JavaScript or a careless escaper treats in a special way.
const hostile = "\x00\x01\b\t\n\v\f\r\x1f \"\\/<>&'\x7f\u0080\u2028\u2029\ufeff\uffff\ufffd😀é{"

// fullSnapshot has every member of the canonical form.
func fullSnapshot(t testing.TB) *Snapshot {
	t.Helper()
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	h := string(text)
	tape := newTape()
	tape.add(contract.RunStarted, "", 1, `{"engineRunRef":`+h+`,"engineType":"temporal",
		"startedAt":"2026-02-11T10:00:00.1Z","context":{"triggeredBy":`+h+`,"triggerSource":"manual"},
		"planRef":{"uri":"s3://p","sha256":"ab","schemaVersion":"v1","planId":"p","planVersion":"1",
			"sizeBytes":9007199254740993,"compression":"none","expiresAt":`+h+`,"schemaEvolutionPath":`+h+`,
			"migrationHint":{"sourceVersion":`+h+`,"targetVersion":`+h+`,"transformScript":`+h+`}}}`)
	tape.add(contract.StepFailed, "build", 1, `{"reason":`+h+`,
		"error":{"code":"E","message":`+h+`,"retryable":true,"category":"c"}}`)
	tape.add(contract.StepStarted, "build", 1, `{}`)
	tape.add(contract.StepStarted, "build", 2, `{"startedAt":"2026-02-11T10:00:00.123456789Z"}`)
	tape.add(contract.StepCompleted, "build", 2, `{"artifacts":[
		{"uri":"u","kind":"k","sha256":"ff","sizeBytes":0,"expiresAt":"e"},{"uri":`+h+`}]}`)
	tape.add(contract.StepDelayed, hostile, 1, `{"reason":"later"}`)
	tape.add(contract.StepRetrying, hostile, 1, `{"nextAttemptAt":"2026-02-11T10:00:07Z",
		"error":{"code":"E","message":`+h+`,"retryable":true,"category":"c"}}`)
	tape.add(contract.SignalAccepted, "build", 1, `{
		"signalId":"s","signalType":"RETRY_STEP","decidedBy":"d","reason":"r"}`)
	tape.add(contract.SignalRejected, "", 1, `{}`)
	tape.add(contract.RunQueued, "", 1, `{}`)
	tape.add(contract.StepAttested, hostile, 1, `{}`)
	tape.add(contract.RunPaused, "", 1, `{"draining":true}`)
	s := ReduceAll(nil, tape.records)
	failed := *s
	failed.RootCause = &RootCause{StepID: "build", Code: "E", Message: hostile, Category: "c"}
	failed.Artifacts = failed.Step("build").Artifacts
	failed.CompletedAt = epoch
	ms := int64(1 << 60)
	failed.TotalDurationMs = &ms
	failed.Pending = []PendingSignal{{SignalType: contract.SignalCancel, RunSeq: 3}, {hostile, contract.SignalRetryStep, hostile, 1<<32 - 1, 1<<64 - 1}}
	return &failed
}

// canonicalize makes the RFC 8785 form of any JSON text whose names are ASCII and whose numbers are
// 32-bit integers. What encoding/json writes is that form, but for two characters that it escapes.
func canonicalize(t *testing.T, text []byte) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return []byte(strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029", "\n", "").Replace(b.String()))
}

// A general implementation finds nothing to change: names in order and once, strings escaped, no
// space (PRJ-1).
func TestCanonicalFormIsRFC8785PRJ1(t *testing.T) {
	for _, s := range []*Snapshot{fullSnapshot(t), ReduceAll(nil, plannedRun(3)), {Status: Pending}} {
		got := s.CanonicalJSON()
		want := canonicalize(t, got)
		if !bytes.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if s.Digest() != sha256.Sum256(want) {
			t.Error("the digest is not SHA-256 over the canonical form")
		}
	}
}

func TestCanonicalStringsRFC8785PRJ1(t *testing.T) {
	got := string(jsontext.AppendQuoted(nil, hostile))
	want := `"\u0000\u0001\b\t\n\u000b\f\r\u001f \"\\/<>&'` + "\x7f\u0080\u2028\u2029\ufeff\uffff\ufffd😀é{\""
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestCanonicalTimesPRJ1(t *testing.T) {
	for nanos, want := range map[int]string{
		0: "10:00:00Z", 5e8: "10:00:00.5Z", 1e6: "10:00:00.001Z", 1: "10:00:00.000000001Z", 120: "10:00:00.00000012Z",
	} {
		s := &Snapshot{Status: Running, StartedAt: epoch.Add(time.Duration(nanos)).In(time.FixedZone("", 3600))}
		if got := string(s.CanonicalJSON()); !strings.Contains(got, `"startedAt":"2026-02-11T`+want+`"`) {
			t.Errorf("want %s in %s", want, got)
		}
	}
}

func TestWhatTheDigestLeavesOutPRJ1(t *testing.T) {
	s := fullSnapshot(t)
	other := *s
	other.PersistedAt = other.PersistedAt.Add(time.Hour)
	other.PausedAt = other.PausedAt.Add(time.Hour)
	other.Draining = !other.Draining
	if s.Digest() != other.Digest() {
		t.Error("the digest depends on what only serves lag and substatus")
	}
	other.LastEventSeq++
	if s.Digest() == other.Digest() {
		t.Error("the digest does not depend on the watermark")
	}
}

func TestStoredGolden(t *testing.T) {
	const path = "testdata/stored_v9.golden"
	s := fullSnapshot(t)
	got := s.MarshalStored()
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := want[storedHeader:]
	// Another version of S2 may compress in another way.
	if !bytes.Equal(got[:storedHeader], want[:storedHeader]) {
		t.Errorf("the stored form has changed: raise StoredFormat and rewrite\ngot  %q\nwant %q", got, want)
	}
	back, err := UnmarshalStored(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(asLists(back), asLists(s)) {
		t.Errorf("read back\n%+v\nwant\n%+v", back, s)
	}
	canonical, err := s2.Decode(nil, packed)
	if err != nil || s.Digest() != sha256.Sum256(canonical) {
		t.Errorf("the digest is not that of the stored bytes, error %v", err)
	}
}

func TestUnreadable(t *testing.T) {
	good := string(ReduceAll(nil, plannedRun(1)).CanonicalJSON())
	replace := func(old, by string) string {
		t.Helper()
		bad := strings.Replace(good, old, by, 1)
		if bad == good {
			t.Fatalf("%q is not in %s", old, good)
		}
		return bad
	}
	for name, data := range map[string]string{
		"nothing":         "",
		"no object":       "[]",
		"cut":             good[:len(good)-1],
		"cut in a string": good[:30],
		"more after it":   good + " ",
		"white space":     replace(`{"artifacts"`, `{ "artifacts"`),
		"unknown member":  replace(`{"artifacts"`, `{"aa":1,"artifacts"`),
		"member twice":    replace(`"planId"`, `"planId":"plan-1","planId"`),
		"number":          replace(`"failedSteps":0`, `"failedSteps":00`),
		"64-bit number":   replace(`"lastEventSeq":"5"`, `"lastEventSeq":5`),
		"run status":      replace(`"status":"COMPLETED"`, `"status":"DONE"`),
		"forged status":   replace(`"status":"COMPLETED"`, `"status":"INVALID(0)"`),
		"step status":     replace(`"status":"SUCCESS"`, `"status":"INVALID(0)"`),
		"null step":       replace(`"steps":[`, `"steps":[null,`),
		"time zone":       replace(`10:45:00Z`, `11:45:00+01:00`),
	} {
		if _, err := ParseSnapshot([]byte(data)); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	step := `{"artifacts":[],"attempts":[],"logicalAttemptId":1,"status":"PENDING","stepId":"a"}`
	steps := func(list string) string {
		return strings.Replace(string((&Snapshot{Status: Pending}).CanonicalJSON()), `"steps":[]`, `"steps":[`+list+`]`, 1)
	}
	if _, err := ParseSnapshot([]byte(steps(step))); err != nil {
		t.Errorf("one step: %v", err)
	}
	attempt := func(n, status string) string {
		return `{"artifacts":[],"logicalAttemptId":` + n + `,"status":"` + status + `"}`
	}
	for name, list := range map[string]string{
		"step twice":        step + "," + step,
		"attempt not below": strings.Replace(step, `"attempts":[]`, `"attempts":[`+attempt("1", "PENDING")+`]`, 1),
		"attempt status":    strings.Replace(step, `"attempts":[]`, `"attempts":[`+attempt("0", "INVALID(0)")+`]`, 1),
		"attempts reversed": strings.Replace(strings.Replace(step, `"logicalAttemptId":1`, `"logicalAttemptId":9`, 1),
			`"attempts":[]`, `"attempts":[`+attempt("3", "PENDING")+`,`+attempt("2", "PENDING")+`]`, 1),
	} {
		if _, err := ParseSnapshot([]byte(steps(list))); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stored := ReduceAll(nil, plannedRun(1)).MarshalStored()
	for name, data := range map[string][]byte{
		"short header": stored[:storedHeader-1],
		"header alone": stored[:storedHeader],
		"other format": append([]byte{StoredFormat + 1}, stored[1:]...),
		"other flags":  append([]byte{StoredFormat, 2}, stored[2:]...),
		"cut":          stored[:len(stored)-1],
	} {
		if _, err := UnmarshalStored(data); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
