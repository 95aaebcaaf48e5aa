package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"runlog/client/command/output"

	"runlog/proto/contract"
)

const errorsHead = `# Errors

Every error is a gRPC status with ` + "`google.rpc.ErrorInfo`" + `. It contains the domain ` + "`runlog`" + `, one of
the reasons below, and the facts as metadata. ` + "`BadRequest`" + ` lists every invalid field. ` + "`RetryInfo`" + `
states the delay before a retry. Over HTTP the same content comes as JSON, with the HTTP status
below. The [glossary](glossary.md) defines the words.

The column *stored?* says whether the events of the call were stored. The column *retry as it is?*
says whether the same request may be sent again. ` + "`runlog errors lookup REASON`" + ` prints one row on
the command line.

This command writes the table from proto/contract/reason.go:
` + "`go test ./cmd/runlog -run TestErrorsDocument -update`" + `.

| reason | gRPC code | HTTP | stored? | retry as it is? | what to do |
|---|---|---|---|---|---|
`

// TestErrorsDocument holds docs/errors.md to the one table in the code (docs/contract.md, Errors).
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
	b.WriteString("\nNo call of this version returns these reasons. The contract reserves them for later calls:\n")
	sep := ""
	for _, r := range contract.Reasons() {
		if r.Reason.Reserved() {
			fmt.Fprintf(&b, "%s`%s`", sep, r.Reason)
			sep = ",\n"
		}
	}
	b.WriteString(".\n")
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
		t.Errorf("docs/errors.md differs from the table; run go test ./cmd/runlog -run TestErrorsDocument -%s", flag.Lookup("update").Name)
	}
}

// TestErrorsLookup shows every reason by name, in any case, and refuses others.
func TestErrorsLookup(t *testing.T) {
	for _, r := range contract.Reasons() {
		var out, errs bytes.Buffer
		code := run(t.Context(), testSession(&out, &errs), []string{"errors", "lookup", strings.ToLower(string(r.Reason))})
		if code != output.ExitOK || !strings.HasPrefix(out.String(), string(r.Reason)+"\n") || !strings.Contains(out.String(), r.Help) {
			t.Errorf("%s: exit %d, %s%s", r.Reason, code, out.String(), errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), testSession(&out, &errs), []string{"errors", "lookup", "NOPE"}); code != output.ExitUsage || !strings.Contains(errs.String(), `"NOPE"`) {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}

// TestReservedReasons: a reason is reserved exactly while no code but the table names it.
func TestReservedReasons(t *testing.T) {
	table := filepath.Join("..", "..", "proto", "contract", "reason.go")
	parsed, err := parser.ParseFile(token.NewFileSet(), table, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, tree := range []string{"server", "projector", "proto/contract"} {
		err := filepath.WalkDir(filepath.Join("..", "..", filepath.FromSlash(tree)), func(file string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "servertest": // Tests alone.
				return filepath.SkipDir
			case !strings.HasSuffix(file, ".go"), strings.HasSuffix(file, "_test.go"), d.Name() == "reason.go":
				return nil
			}
			text, err := os.ReadFile(file)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	names := 0
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || fmt.Sprint(spec.Type) != "Reason" {
			return true
		}
		names++
		name := spec.Names[0].Name
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if used := strings.Contains(code.String(), name); used == contract.Reason(value).Reserved() {
			t.Errorf("%s: named by the code: %v, reserved: %v", value, used, contract.Reason(value).Reserved())
		}
		return true
	})
	if names != len(contract.Reasons()) {
		t.Errorf("found %d of %d reasons", names, len(contract.Reasons()))
	}
}
