package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract/jsontext"
)

// TestTextsOfLinesENV8: payload and extensions of a line come back byte for byte, and a record with
// them can be imported, where its digests are compared.
func TestTextsOfLinesENV8(t *testing.T) {
	t.Parallel()
	p := processes{t: t, server: spawnNode(t, t.TempDir()).ready(t).GRPC}
	to := spawnNode(t, t.TempDir()).ready(t)
	other := processes{t: t, server: to.GRPC}
	texts := []string{`{"n":9007199254740993,"m":1.10}`, `{ "b" :	1,"a":2 }`, `{"a":1,"a":"\u0061\/"}`, `{}`}
	word := rapid.Map(rapid.String(), func(s string) string { return `{"w" : ` + string(jsontext.AppendQuoted(nil, s)) + `}` })
	for seed := range 20 {
		texts = append(texts, word.Example(seed))
	}
	var lines strings.Builder
	for i, text := range texts {
		fmt.Fprintln(&lines, line("Noted", "run", fmt.Sprintf(`,"stepId":"s%d","payload":%s,"extensions":%s`, i, text, texts[len(texts)-1-i])))
	}
	fmt.Fprintln(&lines, line("RunCancelled", "run", ""))
	if code, out, errs := p.run(lines.String(), "append", "-"); code != 0 {
		t.Fatalf("append: %d %s %s", code, out, errs)
	}
	code, records, errs := p.run("", "events", "run", "-o", "json")
	if code != 0 {
		t.Fatalf("events: %d %s", code, errs)
	}
	check := func(records string) {
		t.Helper()
		all := strings.Split(strings.TrimSpace(records), "\n")
		if len(all) != len(texts)+1 {
			t.Fatalf("%d records of %d", len(all), len(texts)+1)
		}
		for i, text := range texts {
			if got := textOf(t, all[i], "payload"); got != text {
				t.Errorf("payload %q reads as %q", text, got)
			}
			if got := textOf(t, all[i], "extensions"); got != texts[len(texts)-1-i] {
				t.Errorf("extensions %q read as %q", texts[len(texts)-1-i], got)
			}
		}
	}
	check(records)
	if code, out, errs := other.run(records, "import", "--admin="+to.Admin, write(t, records)); code != 0 {
		t.Fatalf("import: %d %s %s", code, out, errs)
	}
	_, imported, _ := other.run("", "events", "run", "-o", "json")
	check(imported)
}

// textOf is the text of a member of a record, which may be in base64.
func textOf(t *testing.T, record, member string) string {
	t.Helper()
	if text, ok := jsontext.Lookup([]byte(record), member); ok {
		return string(text)
	}
	encoded, _ := jsontext.Lookup([]byte(record), member+"Json")
	text, err := base64.StdEncoding.DecodeString(jsontext.Text(encoded))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
