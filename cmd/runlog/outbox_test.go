package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/client/command/output"
	"runlog/client/outbox"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// parked makes an outbox with five records: one is rejected, and the server will refuse another.
func parked(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "engine.outbox")
	o, err := outbox.Open(path, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for i, what := range []string{"run-1 extract", "run-2 load", "run-1 transform", "run-2 ", "run-1 load"} {
		run, step, _ := strings.Cut(what, " ")
		e, err := contract.ParseEvent([]byte(fmt.Sprintf(`{"eventType":"StepStarted","runId":%q,"tenantId":"acme","projectId":"shop",
			"environmentId":"prod","planId":"nightly","planVersion":"1","stepId":%q,"logicalAttemptId":1,"engineAttemptId":1,
			"eventId":"01234567-89ab-cdef-0123-00000000000%d","emittedAt":"2026-02-11T10:30:00Z","payload":{"n" : 1.0}}`, run, step, i)))
		if err != nil {
			t.Fatal(err)
		}
		req := &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}}
		if i == 1 {
			req.Fence = proto.Uint64(7)
		}
		if _, err := o.Put(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	o.Reject(2, "LEASE_LOST: another worker\nhas the run")
	return path
}

var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|process \d+`)

// outboxStory runs command lines on one outbox and returns what they print.
func outboxStory(t *testing.T, fake *fakeServer, path string, lines ...string) string {
	t.Helper()
	var got strings.Builder
	for _, line := range lines {
		s := &invocation{args: strings.Fields(strings.ReplaceAll(line, "FILE", path))}
		s.do(t.Context(), t, fake)
		got.WriteString(s.text())
	}
	return varying.ReplaceAllStringFunc(strings.ReplaceAll(got.String(), filepath.Dir(path), "dir"), func(s string) string {
		if strings.HasPrefix(s, "process") {
			return "process <pid>"
		}
		return "<time>"
	})
}

// TestGoldenOutbox shows what operators see of an outbox, from the first look until it is empty.
func TestGoldenOutbox(t *testing.T) {
	t.Parallel()
	fake := &fakeServer{}
	path := parked(t)
	golden(t, "outbox", outboxStory(t, fake, path,
		"outbox ls FILE", "outbox ls FILE -o json", "outbox export FILE", "outbox export FILE --state rejected",
		"outbox drain FILE", "outbox ls FILE", "outbox drain FILE -o json", "outbox drain FILE --discard-rejected", "outbox ls FILE", "outbox drain FILE"))
	var steps []string
	for _, r := range fake.stored("run-1") {
		steps = append(steps, r.GetEventId()[35:])
	}
	if got := strings.Join(steps, ""); got != "024" || len(fake.stored("run-2")) != 0 {
		t.Errorf("run-1 has the events %s, run-2 has %d", got, len(fake.stored("run-2")))
	}
}

// TestGoldenOutboxFaults shows what operators see of files that are in use, damaged, or no outbox.
func TestGoldenOutboxFaults(t *testing.T) {
	t.Parallel()
	path := parked(t)
	held, err := outbox.Open(path, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The command is another process than the engine.
	if err := os.WriteFile(path+".lock", []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := outboxStory(t, &fakeServer{}, path, "outbox drain FILE", "outbox export FILE --state pending")
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[60] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got += outboxStory(t, &fakeServer{}, path, "outbox ls FILE", "outbox export FILE --state pending", "outbox drain FILE", "outbox ls FILE.none",
		"outbox drain FILE.none", "outbox ls testdata/run-1.jsonl", "outbox export FILE --state done", "outbox ls", "outbox dran FILE")
	golden(t, "outbox-faults", got)
	if _, err := os.Stat(path + ".none"); err == nil {
		t.Error("drain has made an outbox")
	}
	golden(t, "outbox-help", outboxStory(t, &fakeServer{}, path, "outbox --help", "outbox ls --help", "outbox export --help", "outbox drain --help"))
}

// TestOutboxStaysPending: records stay if the server does not answer, or does not know the caller.
func TestOutboxStaysPending(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]output.ExitCode{
		codes.Unavailable: output.ExitUnavailable, codes.Unauthenticated: output.ExitForbidden, codes.PermissionDenied: output.ExitForbidden,
		codes.NotFound: output.ExitNotFound, codes.InvalidArgument: output.ExitRefused,
	} {
		path := parked(t)
		s := &invocation{args: []string{"outbox", "drain", path, "--timeout", "1s"}}
		s.do(context.Background(), t, &fakeServer{down: status.Error(code, "no")})
		if s.code != want || !strings.Contains(s.stdout.String(), "4 pending and 1 rejected remain") || !strings.Contains(s.stderr.String(), "again") {
			t.Errorf("%v: %s", code, s.text())
		}
	}
}

// TestOutboxOfSeveralTenants: records of a tenant that the caller may not write to stay, with the
// later ones of their run, and keep no others from being sent.
func TestOutboxOfSeveralTenants(t *testing.T) {
	t.Parallel()
	for foreign, want := range map[string]string{
		"run-1": "0 records stored, 0 stored before, 1 refused; 3 pending and 2 rejected remain",
		"run-2": "3 records stored, 0 stored before, 0 refused; 1 pending and 1 rejected remain",
	} {
		path := parked(t)
		s := &invocation{args: []string{"outbox", "drain", path}}
		s.do(t.Context(), t, &fakeServer{foreign: foreign})
		if s.code != output.ExitForbidden || !strings.Contains(s.stdout.String(), want) {
			t.Errorf("%s: %s", foreign, s.text())
		}
		for _, says := range []string{`of run "` + foreign + `" stays, and the later ones of its run: PERMISSION_DENIED`, "drain again with a token"} {
			if strings.Count(s.stderr.String(), says) != 1 {
				t.Errorf("%s: stderr has not once %q: %s", foreign, says, s.text())
			}
		}
		// With the right, the rest is sent.
		again := &invocation{args: []string{"outbox", "drain", path}}
		again.do(t.Context(), t, &fakeServer{})
		if !strings.Contains(again.stdout.String(), "0 pending") {
			t.Errorf("%s, with the right: %s", foreign, again.text())
		}
	}
}
