package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"runlog/client/command/output"
)

// TestImportOfARun: what one node's "events -o json" prints, another node imports with the same
// runSeq, and with its persistedAt in original (APP-13), of both contract lines; a second time it
// changes nothing; and a file of which any line cannot be taken is refused as a whole.
func TestImportOfARun(t *testing.T) {
	t.Parallel()
	from, to := spawnNode(t, t.TempDir()), spawnNode(t, t.TempDir())
	source, target := processes{t: t, server: from.ready(t).GRPC}, processes{t: t, server: to.ready(t).GRPC}
	admin := "--admin=" + to.ready(t).Admin
	whole := []string{
		line("RunQueued", "run", `,"payload":{"n": 1.50 , "t":"\u00e9<" }`), line("StepStarted", "run", `,"stepId":"a"`),
		line("StepCompleted", "run", `,"stepId":"a"`), line("StepStarted", "run", `,"stepId":"b"`), line("RunCancelled", "run", ""),
		`{"eventType":"RunStarted","runId":"flat","emittedAt":"2026-02-11T10:30:00Z","contractVersion":"1.1","context":{"tenantId":"t","projectId":"p","environmentId":"e"},"status":"RUNNING","startedAt":"2026-02-11T10:30:00Z","planRef":{"planId":"plan","planVersion":"1","uri":"s3://plan","sha256":"00","schemaVersion":"1"},"engineType":"temporal","engineRunRef":"x"}`,
		`{"eventType":"RunFailed","runId":"flat","emittedAt":"2026-02-11T10:31:00Z","contractVersion":"1.1","idempotencyKey":"end-flat"}`,
	}
	if code, _, errs := source.run(strings.Join(whole, "\n"), "append", "-"); code != 0 {
		t.Fatalf("append: %d %s", code, errs)
	}
	records := map[string]string{}
	for _, run := range []string{"run", "flat"} {
		code, out, errs := source.run("", "events", run, "-o", "json")
		if code != 0 {
			t.Fatalf("events: %d %s", code, errs)
		}
		records[run] = out
	}
	// Two of the five are lost on the way.
	lines := strings.SplitAfter(records["run"], "\n")
	gappy := lines[0] + lines[2] + lines[4]
	file := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(file, []byte(records["flat"]), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"4 inserted, 0 duplicates", "0 inserted, 4 duplicates"} {
		code, out, errs := target.run("", "import", admin, file, "-f", write(t, gappy))
		if wanted := strings.Replace(want, "4", "5", 1); code != 0 || !strings.Contains(out, wanted) {
			t.Fatalf("import: %d %s %s\nwant %q", code, out, errs, wanted)
		}
	}
	if code, out, _ := target.run(records["flat"], "import", admin, "-"); code != 0 || !strings.Contains(out, "0 inserted, 2 duplicates") {
		t.Errorf("import of the standard input: %d %s", code, out)
	}
	_, flat, _ := target.run("", "events", "flat", "-o", "json")
	if got, want := ofTheSource.ReplaceAllString(flat, ""), ofTheSource.ReplaceAllString(records["flat"], ""); got != want {
		t.Errorf("imported:\n%s\nwas:\n%s", got, want)
	}
	_, kept, _ := target.run("", "events", "run", "-o", "json")
	for i, n := range []int{0, 2, 4} {
		seq := fmt.Sprintf(`"runSeq":"%d"`, n+1)
		original := `"original":{` + stampedAt.FindString(lines[n]) + "}"
		if got := strings.Split(kept, "\n")[i]; !strings.Contains(got, seq) || !strings.Contains(got, original) {
			t.Errorf("record %d lacks %s or %s: %s", i, seq, original, got)
		}
	}
	// A watch of events comes past the gaps, and says so (WATCH-5).
	code, out, errs := target.run("", "watch", "run", "--view", "event", "-o", "json", "--for", "1s")
	if code != 0 || out != kept || strings.Count(errs, "STALE") != 1 || strings.Count(errs, "past the hole, at runSeq 5") != 1 {
		t.Errorf("watch: %d\n%s\nwant\n%s\n%s", code, out, kept, errs)
	}
	for name, test := range map[string]struct{ input, says string }{
		"an open run":           {strings.ReplaceAll(lines[0], `"run"`, `"open"`), `stdin:1: run "open" has no RunCompleted`},
		"a line that is none":   {lines[0] + "{\n" + lines[4], ":2: "},
		"a wrong order":         {lines[4] + lines[0], "comes after 5"},
		"a time that goes back": {lines[0] + stampedAt.ReplaceAllString(lines[4], `"persistedAt":"2020-01-01T00:00:00Z"`), ":2: persistedAt of runSeq 5 of run \"run\" is before that of runSeq 1"},
		"a time to come":        {lines[0] + stampedAt.ReplaceAllString(lines[4], `"persistedAt":"2260-01-01T00:00:00Z"`), ":2: persistedAt of runSeq 5 of run \"run\" is not in the past"},
		"a bad event id":        {strings.Replace(lines[0], `"eventId":"`, `"eventId":"x`, 1) + lines[4], ":1: INVALID_ARGUMENT_FIELD: eventId"},
		"a changed record":      {lines[0] + strings.Replace(lines[2], `"stepId":"a"`, `"stepId":"c"`, 1) + lines[4], ":2: "},
		"a changed digest":      {strings.Replace(lines[0], `"recordDigest":"`, `"recordDigest":"0`, 1) + lines[4], ":1: INVALID_ARGUMENT_FIELD: recordDigest"},
		"a key twice":           {lines[0] + strings.Replace(lines[0], `"runSeq":"1"`, `"runSeq":"2"`, 1) + lines[4], ":2: has the idempotency key of an earlier record"},
		"an event":              {whole[4], "runSeq"},
		"another record":        {strings.Replace(lines[0], `"runSeq":"1"`, `"runSeq":"6"`, 1) + strings.Replace(lines[4], `"runSeq":"5"`, `"runSeq":"8"`, 1), "RUN_ALREADY_EXISTS"},
	} {
		code, out, errs := target.run(test.input, "import", admin, "-")
		if code != int(output.ExitRefused) || !strings.Contains(errs, test.says) || name != "another record" && out != "" {
			t.Errorf("%s: %d %s %s", name, code, out, errs)
		}
	}
	if code, _, errs := target.run(gappy, "import", "--admin", to.ready(t).HTTP, "-"); code != int(output.ExitFailed) || !strings.Contains(errs, "admin listener") {
		t.Errorf("the wrong listener: %d %s", code, errs)
	}
}

var stampedAt = regexp.MustCompile(`"persistedAt":"[^"]*"`)

// ofTheSource matches what an imported record has of its own, and what depends on it.
var ofTheSource = regexp.MustCompile(`,"original":{[^}]*}|"(persistedAt|payloadSalt|payloadDigest|recordDigest|chainDigest)":"[^"]*",`)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
