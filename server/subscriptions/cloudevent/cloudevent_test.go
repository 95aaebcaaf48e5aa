package cloudevent_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/uuid"

	"runlog/proto/contract"
	"runlog/server/subscriptions/cloudevent"
	"runlog/storage"
)

// TestStructuredBUS7 has every byte of an event in structured mode.
func TestStructuredBUS7(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")
	e := &cloudevent.Event{
		Record: &storage.Record{Recorded: contract.Recorded{
			Event:  contract.Event{EventID: contract.EventID(id), Type: "StepCompleted", RunID: `run "1"`, TenantID: "a b/ü", Payload: []byte("{\"n\":1.50,\n \"big\":12345678901234567890}")},
			RunSeq: 1<<53 + 1, PersistedAt: 1795608000_120_000_000,
		}},
		Cluster: "c1", Position: "AQc",
	}
	got := string(cloudevent.AppendStructured([]byte("x"), e))
	want := `x{"specversion":"1.0","id":"run \"1\"/9007199254740993","source":"/runlog/c1/a%20b%2F%C3%BC",` +
		`"type":"runlog.StepCompleted","subject":"run \"1\"","time":"2026-11-25T12:00:00.12Z","eventid":"0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b","runseq":"9007199254740993",` +
		`"tenant":"a b/ü","position":"AQc","datacontenttype":"application/json","data":{"n":1.50,` + "\n" + ` "big":12345678901234567890}}`
	if got != want {
		t.Errorf("\nwant %s\ngot  %s", want, got)
	}
	e.Record.TenantID = ""
	if got := cloudevent.AppendStructured(nil, e); bytes.Contains(got, []byte(`"tenant"`)) || !bytes.Contains(got, []byte(`"/runlog/c1/"`)) {
		t.Errorf("without a tenant: %s", got)
	}
}

// TestBinaryBUS7 has every header of an event in binary mode.
func TestBinaryBUS7(t *testing.T) {
	t.Parallel()
	h := http.Header{"Content-Type": {"other"}, "X-Other": {"stays"}}
	e := newEvent("Step%\"Done", "rün 1", "acme", "AQc", `{}`, 7, 1795608000_000_000_007)
	cloudevent.SetHeaders(h, e)
	want := http.Header{
		"X-Other": {"stays"}, "Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"},
		"Ce-Id": {"r%C3%BCn%201/7"}, "Ce-Eventid": {e.Record.EventID.String()}, "Ce-Source": {"/runlog/c%25201/acme"}, "Ce-Type": {"runlog.Step%25%22Done"},
		"Ce-Subject": {"r%C3%BCn%201"}, "Ce-Time": {"2026-11-25T12:00:00.000000007Z"}, "Ce-Runseq": {"7"},
		"Ce-Tenant": {"acme"}, "Ce-Position": {"AQc"},
	}
	for name := range want {
		if h.Get(name) != want.Get(name) {
			t.Errorf("%s: want %q, got %q", name, want.Get(name), h.Get(name))
		}
	}
	if len(h) != len(want) {
		t.Errorf("want %d headers, got %v", len(want), h)
	}
}

func newEvent(eventType, run, tenant, position, payload string, seq uint64, at int64) *cloudevent.Event {
	return &cloudevent.Event{
		Record: &storage.Record{Recorded: contract.Recorded{
			Event:  contract.Event{EventID: contract.EventID{0: 1, 6: 0x40, 8: 0x80}, Type: eventType, RunID: run, TenantID: tenant, Payload: []byte(payload)},
			RunSeq: seq, PersistedAt: at,
		}},
		Cluster: "c 1", Position: position,
	}
}

// TestIDsENV10: no two places in the logs of any clusters have one message id, and no two places of
// one log have one id, whatever the texts are.
func TestIDsENV10(t *testing.T) {
	t.Parallel()
	texts := []string{"a", "a/1", "a/1/1", "a.1", "a%2E1", "a%2F1", "1", "/", "//", "rün 1", "."}
	ids, messages := map[string]bool{}, map[string]bool{}
	for _, run := range texts {
		for _, seq := range []uint64{1, 11, 1<<64 - 1} {
			for _, cluster := range []string{"c", "c-2"} {
				e := newEvent("T", run, "acme", "", "{}", seq, 0)
				e.Cluster = cluster
				if id := e.ID(); cluster == "c" && ids[id] {
					t.Errorf("run %q, event %d: another one has the id %q", run, seq, id)
				} else {
					ids[id] = true
				}
				id := e.MessageID()
				if messages[id] || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEF0123456789-_~/%") != "" {
					t.Errorf("cluster %s, run %q, event %d: message id %q", cluster, run, seq, id)
				}
				messages[id] = true
			}
		}
	}
}

// FuzzEncodeBUS7 lets the SDK of CloudEvents decode both modes of events with any texts.
func FuzzEncodeBUS7(f *testing.F) {
	f.Add("StepCompleted", "run-1", "acme", "AQc", `{"a":[1,"x"]}`, uint64(1), int64(0))
	f.Add("Custom\"\\\x7f", "rün\u2028 %41/../?#", "..", "%", " { \"\\ud83d\\ude00\" : 1e400 }\n", uint64(1)<<63, int64(1)<<62)
	f.Add("\x00\x1f\b\f\n\r\t", "<&>\U0010ffff", " ", "", `{}`, uint64(0), int64(-1))
	f.Fuzz(func(t *testing.T, eventType, run, tenant, position, payload string, seq uint64, at int64) {
		for _, s := range []*string{&eventType, &run, &tenant, &position} {
			*s = strings.ToValidUTF8(*s, "\ufffd")
		}
		if strings.TrimSpace(run) == "" {
			run += "." // A runId has more than blanks, and the SDK wants it.
		}
		if !json.Valid([]byte(payload)) || strings.TrimSpace(payload)[0] != '{' {
			payload = `{"payload":` + strconv.Quote("x") + `}`
		}
		e := newEvent(eventType, run, tenant, position, payload, seq, at)
		structured := cloudevent.AppendStructured(nil, e)
		if !json.Valid(structured) {
			t.Fatalf("no JSON: %s", structured)
		}
		var got event.Event
		if err := json.Unmarshal(structured, &got); err != nil {
			t.Fatalf("%v: %s", err, structured)
		}
		check(t, "structured", e, &got)
		req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(payload))
		cloudevent.SetHeaders(req.Header, e)
		decoded, err := binding.ToEvent(t.Context(), cehttp.NewMessageFromHttpRequest(req))
		if err != nil {
			t.Fatalf("binary: %v: %v", err, req.Header)
		}
		unescape(t, decoded)
		check(t, "binary", e, decoded)
	})
}

// unescape does to an event in binary mode what the SDK should: it leaves headers percent-encoded.
func unescape(t *testing.T, e *event.Event) {
	t.Helper()
	decode := func(s string) string {
		s, err := url.PathUnescape(s)
		if err != nil {
			t.Error(err)
		}
		return s
	}
	e.SetID(decode(e.ID()))
	e.SetType(decode(e.Type()))
	e.SetSource(decode(e.Source()))
	e.SetSubject(decode(e.Subject()))
	for name, value := range e.Extensions() {
		e.SetExtension(name, decode(text(value)))
	}
}

// check compares what the SDK has decoded with the event.
func check(t *testing.T, mode string, e *cloudevent.Event, got *event.Event) {
	t.Helper()
	if err := got.Validate(); err != nil {
		t.Fatalf("%s: %v", mode, err)
	}
	r := e.Record
	for _, pair := range [][3]string{
		{"id", r.RunID + "/" + strconv.FormatUint(r.RunSeq, 10), got.ID()},
		{"eventid", r.EventID.String(), text(got.Extensions()["eventid"])},
		{"type", "runlog." + r.Type, got.Type()},
		{"subject", r.RunID, got.Subject()},
		{"time", r.Persisted().Format(time.RFC3339Nano), got.Time().UTC().Format(time.RFC3339Nano)},
		{"runseq", strconv.FormatUint(r.RunSeq, 10), text(got.Extensions()["runseq"])},
		{"tenant", r.TenantID, text(got.Extensions()["tenant"])},
		{"position", e.Position, text(got.Extensions()["position"])},
		{"content type", "application/json", got.DataContentType()},
		{"data", string(r.Payload), string(got.Data())},
	} {
		// The SDK trims what it has to set, and the payload.
		if strings.TrimSpace(pair[1]) != strings.TrimSpace(pair[2]) {
			t.Errorf("%s, %s: want %q, got %q", mode, pair[0], pair[1], pair[2])
		}
	}
	if !strings.HasPrefix(got.Source(), "/runlog/c%201/") || strings.Count(got.Source(), "/") != 3 {
		t.Errorf("%s, source: got %q", mode, got.Source())
	}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
