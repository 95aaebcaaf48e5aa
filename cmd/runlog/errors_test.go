package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/proto/contract"
)

const errorsHead = `# Errors

Every error is a gRPC status with ` + "`google.rpc.ErrorInfo`" + `: domain ` + "`runlog`" + `, one of the reasons below, and the facts as
metadata. ` + "`BadRequest`" + ` names every field at fault, ` + "`RetryInfo`" + ` the delay, where they apply. Over HTTP the same comes as
JSON, with the HTTP status below. *Stored?* tells what may be concluded about the events of the call, *retry?* whether the
same request may be sent again. ` + "`runlog errors lookup REASON`" + ` shows a row on the command line.

The table is made from proto/contract/reason.go by ` + "`go test ./cmd/runlog -run TestErrorsDocument -update`" + `.

| reason | gRPC code | HTTP | stored? | retry as it is? | what to do |
|---|---|---|---|---|---|
`

// TestErrorsDocument holds docs/errors.md to the one table in the code (contract section 7).
func TestErrorsDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString(errorsHead)
	for _, r := range contract.Reasons() {
		http := fmt.Sprint(r.HTTP)
		if r.Reason == contract.ReasonOutcomeUnknown {
			http += "; 504 DEADLINE_EXCEEDED when the call ran out of time"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", r.Reason, grpcName(r), http, r.Stored, r.Retry, r.Help)
	}
	path := filepath.Join("..", "..", "docs", "errors.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("docs/errors.md is not what the table says; run go test ./cmd/runlog -run TestErrorsDocument -%s", flag.Lookup("update").Name)
	}
}

// TestErrorsLookup shows every reason by name, in any case, and refuses others.
func TestErrorsLookup(t *testing.T) {
	for _, r := range contract.Reasons() {
		var out, errs bytes.Buffer
		a := &app{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
		code := a.run(t.Context(), []string{"errors", "lookup", strings.ToLower(string(r.Reason))})
		if code != exitOK || !strings.HasPrefix(out.String(), string(r.Reason)+"\n") || !strings.Contains(out.String(), r.Help) {
			t.Errorf("%s: exit %d, %s%s", r.Reason, code, out.String(), errs.String())
		}
	}
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
	if code := a.run(t.Context(), []string{"errors", "lookup", "NOPE"}); code != exitUsage || !strings.Contains(errs.String(), `"NOPE"`) {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}
