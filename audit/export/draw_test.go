package export

import (
	"encoding/json"
	"strings"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/proto/contract/contracttest"
)

// drawRecords draws the records of a window: of few runs, with gaps, some imported, with texts that
// are hard to keep.
func drawRecords(t *rapid.T) []*Record {
	type state struct {
		seq   uint64
		chain contract.Digest
	}
	runs := map[string]*state{}
	var out []*Record
	at := rapid.SampledFrom([]int64{1, 1e9, 1893456000_123456789}).Draw(t, "begin")
	for range rapid.IntRange(0, 12).Draw(t, "records") {
		run := rapid.SampledFrom([]string{"r", "r\"2", "run,3", "läuft\n4"}).Draw(t, "run")
		s := runs[run]
		if s == nil {
			s = &state{seq: rapid.SampledFrom([]uint64{0, contract.MaxRunSeq - 12<<40}).Draw(t, "before")}
			runs[run] = s
		}
		gap := rapid.SampledFrom([]uint64{1, 1, 1, 2, 1 << 40}).Draw(t, "gap")
		r := drawRecord(t)
		s.seq += gap
		r.RunID, r.RunSeq = run, s.seq
		r.TenantID, r.ProjectID, r.EnvironmentID = "tenant "+run, "p", "e"
		at += rapid.SampledFrom([]int64{0, 1, 1e3, 1e6, 999_999_999}).Draw(t, "later")
		r.PersistedAt = at
		if rapid.IntRange(0, 4).Draw(t, "imported") == 4 {
			r.Original = contract.Original{PersistedAt: rapid.Int64Min(1).Draw(t, "original"), Source: rapid.SampledFrom([]string{"", "cert:a,b", `"`}).Draw(t, "source")}
		}
		seal(r, &s.chain)
		out = append(out, r)
	}
	return out
}

func drawRecord(t *rapid.T) *Record {
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "plain", `a"b`, "a,b", "\r\n", "#", "\\", `\"`, "'", " x ", "\u2028", "null", "\x00", "\x7f"}), rapid.String())
	objects := rapid.Custom(func(t *rapid.T) []byte { return []byte(drawPayload(t)) })
	r := (*Record)(contracttest.Draw(t, rapid.OneOf(rapid.Just("plain"), text), objects))
	r.LogicalAttemptID, r.EngineAttemptID, r.Original = max(1, r.LogicalAttemptID), max(1, r.EngineAttemptID), contract.Original{}
	if rapid.Bool().Draw(t, "not extended") {
		r.Extensions = nil
	}
	return r
}

// drawPayload draws a JSON object, with white space and line breaks around it and between its
// tokens.
func drawPayload(t *rapid.T) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n", "\r\n", "\t"})
	value := rapid.OneOf(rapid.SampledFrom([]string{"1", "1.50", "12345678901234567890", "null", `"\ud800"`, `"\""`, `"\\"`, "[]", `{"a":[{}]}`, `"}"`, `"],{"`, `"é\u0000"`}),
		rapid.Map(rapid.String(), func(s string) string {
			b, _ := json.Marshal(s)
			return string(b)
		}))
	var b strings.Builder
	b.WriteString(space.Draw(t, "space") + "{" + space.Draw(t, "space"))
	for i := range rapid.IntRange(0, 4).Draw(t, "members") {
		if i > 0 {
			b.WriteString("," + space.Draw(t, "space"))
		}
		b.WriteString(`"m":` + space.Draw(t, "space") + value.Draw(t, "value"))
	}
	return b.String() + space.Draw(t, "space") + "}" + space.Draw(t, "space")
}
