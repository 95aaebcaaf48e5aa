package export

import (
	"strings"
	"testing"
)

// TestTamperedToNothing: values that say what is not so, and are read as if they were not there.
func TestTamperedToNothing(t *testing.T) {
	original := evidence()
	key := signer(t, 1).PublicKey()
	text, table := string(exported(t, JSONLines, original)), string(exported(t, CSV, original))
	for what, c := range map[string]struct {
		f    Format
		file string
	}{
		"imported in 1970":             {JSONLines, strings.Replace(text, `,"payload":{`, `,"original":{"persistedAt":"1970-01-01T00:00:00Z"},"payload":{`, 1)},
		"imported in 1970, CSV":        {CSV, strings.Replace(table, `,,,"{`, `1970-01-01T00:00:00Z,,,"{`, 1)},
		"a source without a time":      {JSONLines, strings.Replace(text, `,"payload":{`, `,"original":{"source":"x"},"payload":{`, 1)},
		"a source without a time, CSV": {CSV, strings.Replace(table, `,,,"{`, `,x,,"{`, 1)},
		"a step without a name":        {JSONLines, strings.Replace(text, `,"payload":{`, `,"parentEventId":"","payload":{`, 1)},
		"a token without an id":        {JSONLines, strings.Replace(text, `,"payload":{`, `,"appendedByTokenId":"","payload":{`, 1)},
		"nobody appended it":           {JSONLines, strings.Replace(text, `,"payload":{`, `,"appendedBy":"","payload":{`, 1)},
	} {
		if c.file == text || c.file == table {
			t.Fatalf("%s: nothing was changed", what)
		}
		if report := verified(t, c.f, []byte(c.file), key); len(report.Faults) == 0 {
			t.Errorf("%s: it verifies", what)
		}
	}
	// A Parquet file in which no row names a contract, or in which one has what every event that
	// has none is without.
	records := typical(100)
	for _, r := range records {
		r.StepID, r.EmittedBy = "", ""
	}
	reseal(records)
	manifest := manifestOf(t, signer(t, 1), records)
	for what, change := range map[string]func(*parquetRow){
		"as it was":         func(*parquetRow) {},
		"without contracts": func(r *parquetRow) { r.ContractVersion = "" },
		"without types":     func(r *parquetRow) { r.EventType = "" },
		"imported in 1970":  func(r *parquetRow) { r.OriginalAt = new(int64) },
		"a step of no name": func(r *parquetRow) { r.StepID = new(string) },
		"by nobody":         func(r *parquetRow) { r.EmittedBy = new(string) },
		"no source":         func(r *parquetRow) { r.OriginalAt, r.OriginalSource = new(int64(1)), new(string) },
		"a source alone":    func(r *parquetRow) { r.OriginalSource = new("x") },
		"no identity":       func(r *parquetRow) { r.AppendedBy = new(string) },
		"no token":          func(r *parquetRow) { r.TokenID = new(string) },
		"an empty signal":   func(r *parquetRow) { r.CausedBySignalID = new(string) },
		"an empty parent":   func(r *parquetRow) { r.ParentEventID = new(string) },
	} {
		rows := rowsOf(records)
		for i := range rows {
			change(&rows[i])
		}
		report := verified(t, Parquet, fileOfRows(t, rows, manifest), key)
		if ok := len(report.Faults) == 0; ok != (what == "as it was") {
			t.Errorf("Parquet, %s: verifies: %v %q", what, ok, report.Faults)
		}
	}
}
