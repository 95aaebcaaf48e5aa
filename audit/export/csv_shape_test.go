package export

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
)

// besideOf returns a text file of records without its manifest, and the manifest.
func besideOf(t testing.TB, f Format, records []*Record) (file []byte, manifest string) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(f, &out)
	for i := 0; i < len(records) && err == nil; i++ {
		err = w.Write(records[i])
	}
	if err == nil {
		err = w.Close("")
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), manifestOf(t, signer(t, 1), records)
}

// cellsOf returns the cells of a record's row, as other programs are to read them.
func cellsOf(r *Record) []string {
	original := ""
	if r.Original.PersistedAt != 0 {
		original = string(appendTime(nil, r.Original.PersistedAt))
	}
	return []string{
		r.EventID.String(), r.Type, r.RunID, r.TenantID, r.ProjectID, r.EnvironmentID, r.PlanID, r.PlanVersion, r.StepID,
		fmt.Sprint(r.LogicalAttemptID), fmt.Sprint(r.EngineAttemptID), r.IdempotencyKey, string(appendTime(nil, r.EmittedAt)), r.EmittedBy, r.CausedBySignalID,
		r.ParentEventID, r.Contract.String(), fmt.Sprint(r.RunSeq), string(appendTime(nil, r.PersistedAt)), r.PayloadSalt.String(), r.PayloadDigest.String(), r.RecordDigest.String(),
		r.ChainDigest.String(), strings.Join(namesOf(r.Absent), " "), r.AppendedBy.Name, r.AppendedBy.TokenID, original, r.Original.Source, string(r.Extensions), string(r.Payload),
	}
}

// splitRFC4180 reads a text by the grammar of RFC 4180 and nothing else, but with a line feed alone
// at the end of a row.
func splitRFC4180(text string) (rows [][]string, err error) {
	var row []string
	for text != "" {
		cell := ""
		if rest, quoted := strings.CutPrefix(text, `"`); quoted {
			for {
				part, after, closed := strings.Cut(rest, `"`)
				if !closed {
					return nil, fmt.Errorf("a quote without its end: %.40q", text)
				}
				cell += part
				if rest = after; !strings.HasPrefix(rest, `"`) {
					break
				}
				cell, rest = cell+`"`, rest[1:]
			}
			text = rest
		} else {
			n := strings.IndexAny(text, ",\n")
			if n < 0 || strings.ContainsAny(text[:n], "\"\r") {
				return nil, fmt.Errorf("a bare quote or carriage return, or no line end: %.40q", text)
			}
			cell, text = text[:n], text[n:]
		}
		row = append(row, cell)
		switch {
		case strings.HasPrefix(text, ","):
		case strings.HasPrefix(text, "\n"):
			rows, row = append(rows, row), nil
		default:
			return nil, fmt.Errorf("text behind a cell: %.40q", text)
		}
		text = text[1:]
	}
	if row != nil {
		return nil, fmt.Errorf("a row without its end: %q", row)
	}
	return rows, nil
}

// TestCSVOfOthers: a CSV file whose manifest is beside it is RFC 4180 from the first byte to the
// last, and strict readers find every text in it.
func TestCSVOfOthers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := drawRecords(rt)
		file, _ := besideOf(t, CSV, records)
		want := [][]string{columns}
		for _, r := range records {
			want = append(want, cellsOf(r))
		}
		if rows, err := splitRFC4180(string(file)); err != nil || !slices.EqualFunc(rows, want, slices.Equal) {
			rt.Fatalf("%v: got\n%q\nwant\n%q", err, rows, want)
		}
		strict := csv.NewReader(bytes.NewReader(file))
		strict.FieldsPerRecord = len(columns)
		rows, err := strict.ReadAll()
		for _, row := range want {
			for i := range row {
				row[i] = strings.ReplaceAll(row[i], "\r\n", "\n") // as encoding/csv does
			}
		}
		if err != nil || !slices.EqualFunc(rows, want, slices.Equal) {
			rt.Fatalf("encoding/csv: %v: got\n%q\nwant\n%q", err, rows, want)
		}
	})
}

// TestCSVInSQLite: sqlite3 imports a CSV file whose manifest is beside it as it is, every byte of
// every text.
func TestCSVInSQLite(t *testing.T) {
	sqlite, err := exec.LookPath("sqlite3")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("sqlite3 is not installed; .ci/run installs it")
	}
	if err != nil {
		t.Fatal(err)
	}
	records := evidence()
	var chain contract.Digest
	for i, payload := range []string{
		`{"a": "x,y"}`, "{\n  \"a\": \"line\",\r\n\t\"b\": 2\n}", `{"a":"\"quoted\"","b":"","c":"'"}`, `{"a":"läuft 🎉","b":null}`, ` {"a":"=1+1"} `,
	} {
		r := *records[0]
		r.RunID, r.RunSeq, r.Payload, r.EmittedBy = fmt.Sprintf("run \"%d\", läuft", i), 1, []byte(payload), "  # a, \"b\" "
		chain = contract.Digest{}
		seal(&r, &chain)
		records = append(records, &r)
	}
	dir := t.TempDir()
	file, _ := besideOf(t, CSV, records)
	if err := os.WriteFile(filepath.Join(dir, "e.csv"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	var hexed []string
	for _, c := range columns {
		hexed = append(hexed, "hex("+c+")")
	}
	cmd := exec.CommandContext(t.Context(), sqlite, "-batch", "-cmd", ".import --csv e.csv events", "e.db",
		"select "+strings.Join(hexed, ", ")+" from events order by rowid")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var want strings.Builder
	for _, r := range records {
		cells := cellsOf(r)
		for i := range cells {
			cells[i] = strings.ToUpper(hex.EncodeToString([]byte(cells[i])))
		}
		want.WriteString(strings.Join(cells, "|") + "\n")
	}
	if string(out) != want.String() {
		t.Errorf("sqlite3 has\n%s\nwant\n%s", out, want.String())
	}
}

// TestBesideAPP11: a text file verifies with the manifest beside it, and only with its own.
func TestBesideAPP11(t *testing.T) {
	key := signer(t, 1).PublicKey()
	for _, f := range []Format{JSONLines, CSV} {
		records := evidence()
		file, manifest := besideOf(t, f, records)
		verify := func(file []byte, manifest string) *Report {
			t.Helper()
			report, err := VerifyBeside(t.Context(), f, bytes.NewReader(file), int64(len(file)), manifest, key)
			if err != nil {
				t.Fatal(err)
			}
			if report.Unsigned != nil {
				report.Faults = append(report.Faults, report.Unsigned.Error())
			}
			return report
		}
		if r := verify(file, manifest); len(r.Faults) > 0 || r.Events != uint64(len(records)) || r.Manifest.Key != key {
			t.Fatalf("%v: %+v", f, r)
		}
		if has, err := HasManifest(f, bytes.NewReader(file), int64(len(file))); has || err != nil {
			t.Errorf("%v: a manifest is found where there is none: %v", f, err)
		}
		inside := exported(t, f, records)
		if has, err := HasManifest(f, bytes.NewReader(inside), int64(len(inside))); !has || err != nil {
			t.Errorf("%v: no manifest is found: %v", f, err)
		}
		lastRow, _ := besideOf(t, f, records[:len(records)-1])
		none, ofNone := besideOf(t, f, nil)
		if r := verify(none, ofNone); len(r.Faults) > 0 || r.Events != 0 {
			t.Errorf("%v: an export without events: %+v", f, r)
		}
		for name, tampered := range map[string]struct {
			file     []byte
			manifest string
		}{
			"the last record is gone":      {lastRow, manifest},
			"all records are gone":         {none, manifest},
			"nothing is left":              {nil, manifest},
			"a byte is gone":               {file[:len(file)-1], manifest},
			"an empty line is added":       {append(bytes.Clone(file), '\n'), manifest},
			"records twice":                {append(bytes.Clone(file), file[bytes.IndexByte(file, '\n')+1:]...), manifest},
			"the manifest of another":      {file, ofNone},
			"a manifest inside, too":       {inside, manifest},
			"no manifest":                  {file, ""},
			"a text that is no manifest":   {file, "runlog export 1\n"},
			"a manifest that was cut":      {file, manifest[:len(manifest)-2]},
			"a manifest that was changed":  {file, strings.Replace(manifest, "count", "Count", 1)},
			"the note of a signer unknown": {file, manifestOf(t, signer(t, 2), records)},
		} {
			if r := verify(tampered.file, tampered.manifest); len(r.Faults) == 0 {
				t.Errorf("%v: not noticed: %s", f, name)
			}
		}
	}
}
