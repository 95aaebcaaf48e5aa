package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAuditOfANodeREAD4: what real nodes recorded, sparse and imported events too, is exported in
// every format, verifies, and is the same after a restart.
func TestAuditOfANodeREAD4(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := spawnNode(t, t.TempDir()), spawnNode(t, dir)
	source, target := processes{t: t, server: first.ready(t).GRPC}, processes{t: t, server: second.ready(t).GRPC}
	do := func(p processes, stdin string, args ...string) string {
		t.Helper()
		code, out, errs := p.run(stdin, args...)
		if code != 0 {
			t.Fatalf("runlog %s: exit %d: %s%s", strings.Join(args, " "), code, out, errs)
		}
		return out + errs
	}
	do(source, "", "append", "../../docs/quickstart/failed-run.jsonl")
	lines := strings.SplitAfter(do(source, "", "events", "run_2026-02-11_inventory_sync", "-o", "json"), "\n")
	lines = append(lines[:3], lines[5:]...) // a gap
	do(target, "", "append", "../../docs/quickstart/flat-1.1.jsonl", "../../docs/quickstart/analytics-pipeline.jsonl")
	do(target, strings.Join(lines, ""), "import", "--admin", second.ready(t).Admin, "-")
	const events = 13 + 90 + 16

	note := do(target, "", "audit", "query", "--from", "-1h", "--limit", "0", "-o", "json")
	to := regexp.MustCompile(`to before (\S+); closed`).FindStringSubmatch(note)
	if to == nil || strings.Count(note, "\n") != events+1 {
		t.Fatalf("the query says:\n%s", note)
	}
	var key struct{ PublicKey string }
	if err := json.Unmarshal([]byte(do(target, "", "audit", "keys", "-o", "json")), &key); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "cluster.pub")
	if err := os.WriteFile(keys, []byte(key.PublicKey), 0o600); err != nil {
		t.Fatal(err)
	}
	digests := map[string]bool{}
	take := func(p processes, name string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		do(p, "", "audit", "export", "--from", "beginning", "--to", to[1], "-f", path)
		var report struct {
			Closed       bool
			Count, Links uint64
			Digest       string
		}
		if err := json.Unmarshal([]byte(do(p, "", "audit", "verify", path, "-o", "json", "--key", keys)), &report); err != nil {
			t.Fatal(err)
		}
		if report.Count != events || report.Links < events-3 || !report.Closed {
			t.Errorf("%s: %+v", name, report)
		}
		digests[report.Digest] = true
		if !strings.Contains(note, report.Digest) {
			t.Errorf("%s has another digest than the query", name)
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.HasSuffix(name, "jsonl") && !strings.Contains(note, string(text[:strings.LastIndex(string(text), `{"manifest"`)])) {
			t.Errorf("%s has other lines than the query: %v", name, err)
		}
	}
	for _, name := range []string{"a.jsonl", "a.csv", "a.parquet"} {
		take(target, name)
	}
	if code := second.stop(t); code != 0 {
		t.Fatalf("exit %d: %s", code, second.stderr)
	}
	take(processes{t: t, server: spawnNode(t, dir).ready(t).GRPC}, "again.jsonl")
	if len(digests) != 1 {
		t.Errorf("digests %v", digests)
	}
}
