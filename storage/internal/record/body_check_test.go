package record

import (
	"slices"
	"strings"
	"testing"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
)

// TestFaultsOfBody: rows that differ from what stored bodies have are refused at start, with what
// to do.
func TestFaultsOfBody(t *testing.T) {
	body := (&recordv1.Body{}).ProtoReflect().Descriptor()
	with := func(name string, change func(f *contract.Field)) []contract.Field {
		rows := slices.Clone(bodyFields)
		change(&rows[slices.IndexFunc(rows, func(f contract.Field) bool { return f.Name == name })])
		return rows
	}
	for name, tt := range map[string]struct {
		rows []contract.Field
		want string
	}{
		"as it is":           {bodyFields, ""},
		"another type":       {with("runSeq", func(f *contract.Field) { f.Kind = contract.KindText }), "runSeq is of kind 1, and uint64 in the message: keep the type that stored bodies have"},
		"a shorter number":   {with("runSeq", func(f *contract.Field) { f.Kind = contract.KindCount }), "runSeq is of kind 2, and uint64 in the message: keep the type"},
		"a time as a number": {with("emittedAt", func(f *contract.Field) { f.Kind = contract.KindNumber }), "emittedAt is of kind 3, and sfixed64 in the message: keep the type"},
		"a digest":           {with("eventId", func(f *contract.Field) { f.Kind = contract.KindDigest }), "eventId is of kind 7, and bytes in the message: keep the type"},
		"a number twice":     {with("emittedBy", func(f *contract.Field) { f.Body = 11 }), "parentEventId has the number 11, which is that of another field"},
		"a code of types":    {with("emittedBy", func(f *contract.Field) { f.Body = bodyTypeCode }), "emittedBy has the number 2, which is that of another field: give it one that is free"},
		"a field no more":    {slices.Delete(slices.Clone(bodyFields), 3, 4), "logical_attempt_id of the message has no row with the number 5: stored bodies have it, so keep its row"},
		"a new field":        {append(slices.Clone(bodyFields), contract.Field{Name: "colour", Column: "colour", Kind: contract.KindText, Body: 23}), "colour has the number 23, and the message has no such field: add it to record.proto"},
		"a new name":         {with("emittedBy", func(f *contract.Field) { f.Name, f.Column = "sentBy", "sent_by" }), "sentBy has the number 9, which is that of emitted_by: what is stored has that field there"},
	} {
		text := ""
		if err := checkBody(tt.rows, body); err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, tt.want) || (text == "") != (tt.want == "") {
			t.Errorf("%s: it says %q, want %q", name, text, tt.want)
		}
	}
}
