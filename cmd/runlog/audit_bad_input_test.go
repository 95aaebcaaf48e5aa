package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runlog/client/command/output"
)

// auditorsDesk is a directory with what an auditor took from a node, whole and damaged.
func auditorsDesk(t *testing.T, p processes) (dir string) {
	t.Helper()
	dir = t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	do := func(args ...string) string {
		t.Helper()
		code, out, errs := p.run("", args...)
		if code != 0 {
			t.Fatalf("runlog %v: exit %d: %s", args, code, errs)
		}
		return out
	}
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(at(name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	do("append", "../../docs/quickstart/failed-run.jsonl", "../../docs/quickstart/flat-1.1.jsonl")
	do("audit", "export", "--from", "beginning", "--manifest=sidecar", "-f", at("a.csv"))
	do("audit", "export", "--run", "run_2026-02-11_ltv_refresh_42", "--manifest=sidecar", "-f", at("ltv.csv"))
	do("audit", "export", "--from", "beginning", "-f", at("a.jsonl"))
	do("audit", "proof", "run_2026-02-11_inventory_sync", "-f", at("run.proof"))
	write("kept.jsonl", []byte(do("audit", "checkpoints", "--limit", "1", "-o", "json")))
	write("cluster.pub", []byte(do("audit", "keys", "-o", "json")))
	write("wrong.pub", []byte(fakeSigner(1).PublicKey()+"\n"))
	write("table.pub", []byte(do("audit", "keys")))
	write("empty.pub", nil)
	csv := read("a.csv")
	for name, text := range map[string][]byte{
		"cut.csv":     csv[:len(csv)/2],
		"short.csv":   csv[:bytes.LastIndexByte(csv[:len(csv)-1], '\n')+1],
		"changed.csv": bytes.Replace(csv, []byte("SCHEMA_MISMATCH"), []byte("SCHEMA_MISTAKES"), 1),
		"crlf.csv":    bytes.ReplaceAll(csv, []byte("\n"), []byte("\r\n")),
		"bom.csv":     append([]byte("\ufeff"), csv...),
		"sorted.csv":  bytes.Join(append(bytes.SplitAfter(csv, []byte("\n"))[:1], bytes.SplitAfter(csv, []byte("\n"))[2:]...), nil),
	} {
		write(name, text)
		write(name+".manifest", read("a.csv.manifest"))
	}
	write("alone.csv", csv)
	write("other.csv", csv)
	write("other.csv.manifest", read("ltv.csv.manifest"))
	return dir
}

// TestBadInputOfAuditors is a table of what auditors mistype, forget and receive: the answer, the
// exit code, and the files that are there afterwards. Nothing reaches the log (READ-3, READ-4).
func TestBadInputOfAuditors(t *testing.T) {
	t.Parallel()
	n := spawnNode(t, t.TempDir())
	a := n.ready(t)
	p := processes{t: t, server: a.GRPC}
	dir := auditorsDesk(t, p)
	window := func() string {
		_, out, _ := p.run("", "audit", "query", "--from", "beginning", "--to", "now", "-o", "json", "--limit", "0")
		return out
	}
	const run, query, export, verify = "run_2026-02-11_inventory_sync", "audit query --from -1h ", "audit export --from -1h -f DIR/new.csv ", "audit verify --key DIR/cluster.pub DIR/"
	before, files := window(), filesIn(t, dir)
	for _, test := range []struct {
		input string // DIR is the desk, _ an empty argument
		code  output.ExitCode
		says  string
		keeps string // new files
	}{
		// Times.
		{"audit query --from noon", output.ExitUsage, `--from "noon" is no time`, ""},
		{"audit query --from 5m", output.ExitUsage, "-5m is this long before now", ""},
		{"audit query --from 2026-02-30", output.ExitUsage, "is no time", ""},
		{"audit query --from 2026-11-23T25:00", output.ExitUsage, "is no time", ""},
		{"audit query --from 1969-12-31T23:59", output.ExitUsage, "not between 1970 and 2262", ""},
		{"audit query --from _", output.ExitUsage, "--from is required", ""},
		{"audit query --from today --to yesterday", output.ExitUsage, "the window would be empty", ""},
		{"audit query --from 2200-01-01", output.ExitRefused, "in the future", ""},
		{"audit export --from -1h --to tomorrow -f DIR/new.csv", output.ExitUsage, `--to "tomorrow" is no time`, ""},
		{"audit export --from -1h --to 2200-01-01T00:00 -f DIR/new.csv", output.ExitRefused, "the window is open", ""},
		{"snapshot " + run + " --as-of-time 10:30", output.ExitUsage, `--as-of-time "10:30" is no time`, ""},
		{"snapshot " + run + " --as-of-time _", output.ExitUsage, `--as-of-time "" is no time`, ""},
		{"snapshot " + run + " --as-of-time -5m --as-of-seq 3", output.ExitUsage, "use only one", ""},

		// Types and runs.
		{query + "--type RunFailed,", output.ExitUsage, "a type is empty", ""},
		{query + "--type _", output.ExitUsage, "a type is empty", ""},
		{query + "--type a|b", output.ExitRefused, "vertical bar", ""},
		{query + "--type T,T --type U", output.ExitOK, `no event of type "T"`, ""},
		{query + "--type " + manyTypes(101), output.ExitRefused, "at most 100", ""},
		{query + "--type StepFialed,RunFailed", output.ExitOK, "did you mean StepFailed?", ""},
		{query + "--type StepFialed,RunFailed --strict", output.ExitNotFound, "did you mean StepFailed?", ""},
		{query + "--type RunFailed,StepAttested --strict", output.ExitNotFound, `no event of type "StepAttested"`, ""},
		{query + "--type RunFailed --strict", output.ExitOK, "1 event from", ""},
		{query + "--run run-9", output.ExitOK, `run "run-9" does not exist`, ""},
		{query + "--run run-9 --strict", output.ExitNotFound, `run "run-9" does not exist`, ""},
		{query + "--tenant acme --type RunFailed", output.ExitOK, `this cluster has no event of tenant "acme"`, ""},
		{query + "--tenant acme --strict", output.ExitNotFound, `this cluster has no event of tenant "acme"`, ""},
		{query + "--tenant tenant_acme --strict", output.ExitOK, "31 events from", ""},
		{query + "--run _ --strict", output.ExitUsage, "--run is empty", ""},
		{export + "--type StepFialed --strict", output.ExitNotFound, "did you mean StepFailed?", ""},
		{export + "--run run-9 --strict -o json", output.ExitNotFound, `run "run-9" does not exist`, ""},
		{"events " + run + " --type RunFialed", output.ExitOK, `has no event of type "RunFialed"; did you mean RunFailed?`, ""},
		{"events " + run + " --type RunStarted,RunFialed --strict", output.ExitNotFound, `has no event of type "RunFialed"`, ""},
		{"events run-9 --type RunStarted", output.ExitNotFound, "RUN_NOT_FOUND", ""},

		// Files of exports.
		{export + "--manifest=beside", output.ExitUsage, "neither inside nor sidecar", ""},
		{"audit export --from -1h --manifest=sidecar -f - --format csv", output.ExitUsage, "no place for a file beside it", ""},
		{"audit export --from -1h --manifest=sidecar -f DIR/new.parquet", output.ExitUsage, "in its metadata", ""},
		{"audit export --from -1h --manifest=sidecar -f DIR/alone.csv", output.ExitUsage, "alone.csv already exists", ""},
		{"audit export --from -1h -f DIR/none/new.csv", output.ExitUsage, "there is no directory DIR/none", ""},
		{"audit export --from -1h new.csv", output.ExitUsage, "name the file with -f", ""},
		{"audit query --from -1h " + run, output.ExitUsage, "name a run with --run", ""},
		{"audit query --from -1h --types RunFailed", output.ExitUsage, "did you mean --type?", ""},
		{"audit prove " + run, output.ExitUsage, "did you mean proof?", ""},
		{"audit export --from -1h -f DIR/new.xlsx", output.ExitUsage, "the format of", ""},
		{export + "--type StepFialed --manifest sidecar", output.ExitOK, "warning: this cluster has no event of type", "new.csv new.csv.manifest"},

		// Keys.
		{"audit verify --key x DIR/a.csv", output.ExitUsage, "neither a public key nor a file", ""},
		{"audit verify --key DIR/none.pub DIR/a.csv", output.ExitUsage, "neither a public key nor a file", ""},
		{"audit verify --key DIR/empty.pub DIR/a.csv", output.ExitUsage, "the file has no public key", ""},
		{"audit verify --key DIR/table.pub DIR/a.csv", output.ExitUsage, "-o json", ""},
		{"audit verify --key DIR DIR/a.csv", output.ExitUsage, "it is a directory", ""},
		{"audit verify --key DIR/wrong.pub DIR/a.csv", output.ExitRefused, "not signed by a key that was named", ""},
		{"audit verify --key DIR/wrong.pub DIR/run.proof", output.ExitRefused, "run.proof: ", ""},
		{"audit proof " + run + " -f DIR/new.proof --key DIR/wrong.pub", output.ExitFailed, "proves nothing", ""},

		// Verification without a key, and of what is not what was exported.
		{"audit verify DIR/a.csv", output.ExitUnverified, "no signature was verified", ""},
		{"audit verify DIR/a.jsonl", output.ExitUnverified, "no signature was verified", ""},
		{"audit verify DIR/run.proof", output.ExitUnverified, "proves nothing without the cluster's public key", ""},
		{"audit verify DIR/kept.jsonl", output.ExitUnverified, "proves nothing without the cluster's public key", ""},
		{"audit verify DIR/changed.csv", output.ExitRefused, "is not what was exported", ""},
		{verify + "a.csv", output.ExitOK, "Signature  verified", ""},
		{verify + "a.jsonl", output.ExitOK, "Signature  verified", ""},
		{verify + "run.proof", output.ExitOK, "Signature   verified", ""},
		{verify + "kept.jsonl", output.ExitOK, "Signature    verified", ""},
		{verify + "changed.csv", output.ExitRefused, "payloadDigest is not that of the payload", ""},
		{verify + "cut.csv", output.ExitRefused, "is not what was exported", ""},
		{verify + "short.csv", output.ExitRefused, "is not what was exported", ""},
		{verify + "sorted.csv", output.ExitRefused, "is not what was exported", ""},
		{verify + "crlf.csv", output.ExitRefused, "its lines end with a carriage return", ""},
		{verify + "bom.csv", output.ExitRefused, "but with a byte order mark", ""},
		{verify + "other.csv", output.ExitRefused, "is not what was exported", ""},
		{verify + "alone.csv", output.ExitRefused, "there is no DIR/alone.csv.manifest", ""},
		{verify + "alone.csv DIR/a.csv.manifest", output.ExitOK, "Signature  verified", ""},
		{verify + "a.csv.manifest", output.ExitUsage, "such as DIR/a.csv", ""},
		{verify + "a.jsonl DIR/a.csv.manifest", output.ExitUsage, "ends with its manifest", ""},
		{verify + "a.csv DIR/a.jsonl", output.ExitUsage, "verify takes one file", ""},
		{verify + "none.csv", output.ExitUsage, "no such file", ""},
	} {
		args := strings.Fields(strings.ReplaceAll(test.input, "DIR", dir))
		for i := range args {
			if args[i] == "_" {
				args[i] = ""
			}
		}
		code, out, errs := p.run("", args...)
		if says := strings.ReplaceAll(test.says, "DIR", dir); code != int(test.code) || !strings.Contains(out+errs, says) {
			t.Errorf("runlog %s: exit %d, want %d and %q:\n%s%s", test.input, code, test.code, says, out, errs)
		}
		if last := strings.Split(strings.TrimSpace(errs), "\n"); code != 0 && !strings.HasPrefix(last[len(last)-1], "runlog: ") {
			t.Errorf("runlog %s: the last line is no error: %s", test.input, errs)
		}
		var made []string
		for _, name := range filesIn(t, dir) {
			if !slices.Contains(files, name) {
				made = append(made, name)
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := strings.Join(made, " "); got != test.keeps {
			t.Errorf("runlog %s: left %q, want %q", test.input, got, test.keeps)
		}
	}
	if after := window(); after != before || strings.Count(after, "\n") != 31 {
		t.Errorf("the log has changed:\n%s\nwas\n%s", after, before)
	}
	if left := filesIn(t, dir); !slices.Equal(left, files) {
		t.Errorf("files are gone: %q of %q", left, files)
	}
}

// manyTypes returns so many event types, for --type.
func manyTypes(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("T", i))
	}
	return strings.Join(names, ",")
}
