package intake

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestImportWaitsForTheNode: what a node cannot take now is sent again, and what it refuses is not.
func TestImportWaitsForTheNode(t *testing.T) {
	calls := 0
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch calls++; calls {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":14,"message":"no leader","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"runlog","reason":"NO_LEADER"}]}`)
		case 2:
			_, _ = io.WriteString(w, `{"results":[{"runSeq":"1","persisted":true}],"lastSeq":"1"}`)
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"code":6,"message":"there is one","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"runlog","reason":"RUN_ALREADY_EXISTS"}]}`)
		}
	}))
	defer node.Close()
	i := importer{app: &app{&session.Session{}}, admin: node.Listener.Addr().String()}
	batch := []item{{event: &runlogv1.EventWrite{RunId: "r"}, record: []byte("{}")}}
	if o := i.send(t.Context(), batch); o.err != nil || len(o.results) != 1 || calls != 2 {
		t.Errorf("%+v after %d calls", o, calls)
	}
	if o := i.send(t.Context(), batch); !errors.Is(o.err, errImportRefused) || len(o.refused) != 1 || calls != 3 {
		t.Errorf("%+v after %d calls", o, calls)
	}
}

// closedRecord is a run of one record.
func closedRecord(run string) string {
	return `{"eventType":"RunCancelled","runId":"` + run + `","tenantId":"t","projectId":"p","environmentId":"e","planId":"plan","planVersion":"1",` +
		`"logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z",` +
		`"eventId":"0190b5a4-3c2e-7d11-8a4f-000000000001","runSeq":1,"persistedAt":"2024-05-01T10:00:00Z"}` + "\n"
}

// TestChangedInput: what was not checked is not imported, whether a file was changed before it is
// read again or meanwhile.
func TestChangedInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	read := func(change func(*source)) (items int, err error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(closedRecord("run")), 0o600); err != nil {
			t.Fatal(err)
		}
		a := app{&session.Session{Stdin: &bytes.Buffer{}}}
		from, err := a.source(t.Context(), path, path+".spool")
		if err != nil {
			t.Fatal(err)
		}
		change(&from)
		chunks := make(chan chunk)
		in := intake{paths: []string{path}, records: true, checked: true, sources: map[string]source{path: from}, out: chunks}
		go in.read(t.Context())
		for c := range chunks {
			items += len(c.items)
			err = errors.Join(err, c.err)
			if c.err != nil {
				break
			}
		}
		return items, err
	}
	if items, err := read(func(*source) {}); items != 1 || err != nil {
		t.Errorf("as it was: %d records, %v", items, err)
	}
	more := func(*source) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(closedRecord("other"))
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if items, err := read(more); items != 0 || !errors.Is(err, errInputChanged) {
		t.Errorf("grown: %d records, %v", items, err)
	}
	scrambled := func(s *source) {
		if err := os.WriteFile(path, []byte(strings.Repeat("x", int(s.size))), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, s.modified); err != nil {
			t.Fatal(err)
		}
	}
	if items, err := read(scrambled); items != 0 || !errors.Is(err, errInputChanged) {
		t.Errorf("scrambled: %d records, %v", items, err)
	}
}
