package contract

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// colour is a row as a new field of the envelope has it, in the place of an old one.
func colour() Field {
	return Field{Name: "colour", canonical: 23, Body: 22, Optional: true, at: func(r *Recorded) any { return &r.ParentEventID }}
}

// refusal returns what a program says when it starts with a table.
func refusal(rows ...Field) (said any) {
	defer func() { said = recover() }()
	described(rows)
	return nil
}

// TestFaultsOfFields: a table with a fault is refused at start, with what to do.
func TestFaultsOfFields(t *testing.T) {
	author := func(r *Recorded) any { return &r.AppendedBy.Name }
	for name, tt := range map[string]struct {
		change func(f *Field)
		want   string
	}{
		"nothing":                         {func(*Field) {}, ""},
		"no name":                         {func(f *Field) { f.Name = "" }, "a row has no name: give it"},
		"a name twice":                    {func(f *Field) { f.Name = "emittedBy" }, "emittedBy and emittedBy are both called emittedBy: remove one"},
		"a column twice":                  {func(f *Field) { f.Name = "emitted.by" }, "emittedBy and emitted.by are both called emitted_by: remove one"},
		"a place twice":                   {func(f *Field) { f.at = func(r *Recorded) any { return &r.EmittedBy } }, "emittedBy and colour are the same field of Recorded: remove one"},
		"a place elsewhere":               {func(f *Field) { f.at = func(*Recorded) any { return new(string) } }, "colour is not in the Recorded that its row is given: return"},
		"no place":                        {func(f *Field) { f.at = nil }, "colour has no place in Recorded (at): return the address of one of its fields"},
		"a type of no kind":               {func(f *Field) { f.at = func(*Recorded) any { return new(float64) } }, "colour is a *float64, which no kind has: use the type of a kind"},
		"no number in a body":             {func(f *Field) { f.Body = 0 }, "colour has no number in a stored body (Body, as in record.v1.Body): give it 10, the next that is free"},
		"a number of a body twice":        {func(f *Field) { f.Body = 9 }, "emittedBy and colour have the number 9 in a stored body (Body, as in record.v1.Body): give the newer one 10"},
		"a number that no body has":       {func(f *Field) { f.Body = BodyNumbers }, "colour has the number 32 in a stored body (Body, as in record.v1.Body), where there is room for those below 32: make more"},
		"no canonical number":             {func(f *Field) { f.canonical = 0 }, "colour has no number among the canonical bytes (canonical): give it 23, the next that is free"},
		"a canonical number twice":        {func(f *Field) { f.canonical = 14 }, "emittedBy and colour have the number 14 among the canonical bytes (canonical): give the newer one 23"},
		"a number of the record digest":   {func(f *Field) { f.canonical = 21 }, "the record digest and colour have the number 21 among the canonical bytes (canonical): give the newer one 23"},
		"a canonical field of no event":   {func(f *Field) { f.at = author }, "colour has a canonical number and is no field of an Event: say elsewhere"},
		"a kind without canonical bytes":  {func(f *Field) { f.at = func(r *Recorded) any { return &r.RunSeq } }, "colour has a canonical number and is of a kind that has no canonical bytes: say elsewhere"},
		"another field inherited with it": {func(f *Field) { f.Absent = AbsentPlan }, "emittedBy and colour have the same bit of Absent: give colour a bit of its own"},
		"a number that is inherited": {func(f *Field) {
			f.Absent, f.at = AbsentTenant, func(r *Recorded) any { return &r.LogicalAttemptID }
		}, "colour has a bit of Absent and is no text: only texts can be inherited"},
		"no number and no room in a body": {func(f *Field) { f.Body = 0 }, "colour has no number in a stored body (Body, as in record.v1.Body): give it 32, and make room for it (BodyNumbers)"},
		"nothing of a producer":           {func(f *Field) { f.at, f.canonical, f.Body = author, elsewhere, elsewhere }, ""},
	} {
		row := colour()
		tt.change(&row)
		before := Field{Name: "emittedBy", canonical: 14, Body: 9, at: func(r *Recorded) any { return &r.EmittedBy }}
		if strings.Contains(name, "no room") {
			before.Body = BodyNumbers - 1
		}
		if strings.Contains(name, "inherited with it") {
			before.Absent = AbsentPlan
		}
		if row.Body == 22 {
			row.Body = 10
		}
		said, _ := refusal(before, row).(string)
		if text, found := strings.CutPrefix(said, "contract: the table of fields (recordedFields): "); found != (tt.want != "") || !strings.HasPrefix(text, tt.want) || strings.Contains(text, "\n") {
			t.Errorf("%s: it says %q, want %q", name, said, tt.want)
		}
	}
	if said, _ := refusal(Field{}, Field{Name: "a", at: author}).(string); strings.Count(said, "\n") < 2 {
		t.Errorf("of several faults, it says %q", said)
	}
}

// TestFaultsOfMessages: a message and a table that differ are refused at start, with what to do.
func TestFaultsOfMessages(t *testing.T) {
	record, write := reflect.TypeFor[runlogv1.EventRecord](), reflect.TypeFor[runlogv1.EventWrite]()
	without := func(name string) []Field {
		return slices.DeleteFunc(Fields(), func(f Field) bool { return f.Name == name })
	}
	with := func(name string, change func(f *Field)) []Field {
		rows := Fields()
		change(&rows[slices.IndexFunc(rows, func(f Field) bool { return f.Name == name })])
		return rows
	}
	type numbered struct {
		EmittedAt *timestamppb.Timestamp `protobuf:"bytes,64,opt,name=emitted_at,json=emittedAt,proto3"`
	}
	for name, tt := range map[string]struct {
		message reflect.Type
		rows    []Field
		want    string
	}{
		"a record":                  {record, Fields(), ""},
		"a written event":           {write, Fields(), ""},
		"a field without a row":     {record, without("parentEventId"), "parent_event_id has no row: add one"},
		"a written field without":   {write, without("emittedBy"), "emitted_by has no row: add one"},
		"a row without a field":     {record, append(Fields(), Field{Name: "colour", Column: "colour", Kind: KindText}), "the message has no colour, which has a row: add it to event.proto and run make generate"},
		"a canonical row without":   {write, append(Fields(), Field{Name: "colour", Column: "colour", Kind: KindText, canonical: 23}), "the message has no colour, which has a row: add it"},
		"a text that is a number":   {record, with("engineAttemptId", func(f *Field) { f.Kind = KindText }), "engine_attempt_id is uint32 in the message and must be string: give both the same type"},
		"a longer number":           {write, with("engineAttemptId", func(f *Field) { f.Kind = KindNumber }), "engine_attempt_id is uint32 in the message and must be uint64: give both the same type"},
		"a time that is a number":   {record, with("persistedAt", func(f *Field) { f.Kind = KindNumber }), "persisted_at is *timestamppb.Timestamp in the message and must be uint64: give both"},
		"what no digest covers":     {write, with("emittedBy", func(f *Field) { f.canonical = 0 }), "emitted_by has no canonical number, so that no digest covers what a producer says: give its row one"},
		"a number without an array": {reflect.TypeFor[numbered](), with("emittedAt", func(*Field) {})[12:13], "emitted_at has the number 64, where there is room for those from 1 to 63: make more (WireNumbers)"},
	} {
		_, err := fieldsOfMessage(tt.message, tt.rows, tt.message != write)
		if text := errorText(err); !strings.HasPrefix(text, tt.want) || (text == "") != (tt.want == "") {
			t.Errorf("%s: it says %q, want %q", name, text, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
