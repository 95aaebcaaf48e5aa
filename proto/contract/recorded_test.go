package contract

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestFieldsOfRecorded: each part of a recorded event has one row, whose method finds it.
func TestFieldsOfRecorded(t *testing.T) {
	var s Recorded
	rows := map[any]string{}
	for _, f := range Fields() {
		var at any
		switch f.Kind {
		case KindText:
			at = f.Text(&s)
		case KindCount:
			at = f.Count(&s)
		case KindNumber:
			at = f.Number(&s)
		case KindTime:
			at = f.Time(&s)
		case KindEventID:
			at = f.EventID(&s)
		case KindLine:
			at = f.Line(&s)
		case KindSalt:
			at = f.Salt(&s)
		case KindDigest:
			at = f.Digest(&s)
		case KindNames:
			at = f.Names(&s)
		case KindObject:
			at = f.Object(&s)
		}
		if at != f.at(&s) {
			t.Errorf("%s is at %p, and its method returns %p", f.Name, f.at(&s), at)
		}
		rows[at] = f.Name
	}
	// No form has them: they say how the event was checked.
	besides := map[string]bool{"AttemptAssigned": true, "KeyDerived": true, "Warnings": true}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			field, name := v.Field(i), v.Type().Field(i).Name
			switch {
			case besides[name]:
			case field.Kind() == reflect.Struct:
				walk(field)
			case rows[field.Addr().Interface()] == "":
				t.Errorf("%s.%s has no row in the table of fields", v.Type(), name)
			}
		}
	}
	walk(reflect.ValueOf(&s).Elem())
}

// TestFieldsOfMessages: the fields of the table are those of the descriptors of the messages, by
// name, number and type.
func TestFieldsOfMessages(t *testing.T) {
	kinds := map[Kind]protoreflect.Kind{
		KindCount: protoreflect.Uint32Kind, KindNumber: protoreflect.Uint64Kind, KindTime: protoreflect.MessageKind, KindObject: protoreflect.BytesKind,
	}
	rows := map[string]bool{}
	for _, f := range Fields() {
		rows[f.Column] = true
	}
	check := func(m proto.Message, fields []MessageField) {
		all := m.ProtoReflect().Descriptor().Fields()
		for i := range all.Len() {
			f := all.Get(i)
			name := strings.TrimSuffix(string(f.Name()), "_json")
			if f.Message() != nil && f.Message().FullName() == "runlog.v1.Original" {
				for k := range f.Message().Fields().Len() {
					if column := name + "_" + string(f.Message().Fields().Get(k).Name()); !rows[column] {
						t.Errorf("%s has no row in the table of fields", column)
					}
				}
				continue
			}
			if f.ContainingOneof() != nil && !f.ContainingOneof().IsSynthetic() && name == "payload" {
				continue
			}
			at := slices.IndexFunc(fields, func(row MessageField) bool { return row.Column == name })
			if at < 0 {
				t.Errorf("%s has no row in the table of fields", f.FullName())
				continue
			}
			row := fields[at]
			want := cmp.Or(kinds[row.Kind], protoreflect.StringKind)
			if row.Wire != f.Number() || f.Kind() != want || f.IsList() != (row.Kind == KindNames) || row.Kind == KindTime && f.Message().FullName() != "google.protobuf.Timestamp" {
				t.Errorf("%s is %v number %d, and its row has kind %d and number %d", f.FullName(), f.Kind(), f.Number(), row.Kind, row.Wire)
			}
			fields = slices.Delete(fields, at, at+1)
		}
		for _, row := range fields {
			t.Errorf("%T has no %s", m, row.Name)
		}
	}
	check(&runlogv1.EventRecord{}, MessageFields())
	check(&runlogv1.EventWrite{}, WrittenFields())
}

// TestFieldOfAnotherKind: a method refuses a field that has another type.
func TestFieldOfAnotherKind(t *testing.T) {
	for _, f := range Fields() {
		func() {
			defer func() {
				if recover() == nil && f.Kind != KindText {
					t.Errorf("%s is taken for a text", f.Name)
				}
			}()
			f.Text(new(Recorded))
		}()
	}
}

// TestMembersOfEvent: the members of an event's JSON fit into the bits of an eventReader.
func TestMembersOfEvent(t *testing.T) {
	if len(jsonFields) > 64 {
		t.Errorf("there are %d", len(jsonFields))
	}
}

// TestCanonicalOfFields: what AppendCanonical and ContentDigest spell out is what the table of
// fields says.
func TestCanonicalOfFields(t *testing.T) {
	walk := func(dst []byte, e *Event, fields []canonicalField) []byte {
		for i := range fields {
			f := &fields[i]
			switch at := f.in(e); f.kind {
			case KindText:
				if text := *(*string)(at); (text != "" || !f.optional) && e.Absent&f.absent == 0 {
					dst = appendField(dst, f.number, text)
				}
			case KindCount:
				dst = appendNumberField(dst, f.number, uint64(*(*uint32)(at)))
			case KindTime:
				dst = appendNumberField(dst, f.number, uint64(*(*int64)(at)))
			case KindEventID:
				dst = appendField(dst, f.number, (*EventID)(at)[:])
			case KindLine:
				dst = appendField(dst, f.number, (*Line)(at).String())
			case KindObject:
				dst = appendOptional(dst, f.number, *(*[]byte)(at))
			}
		}
		return dst
	}
	rapid.Check(t, func(t *rapid.T) {
		e := &Event{}
		for i, f := range recordedFields {
			if f.canonical == 0 || rapid.IntRange(0, 3).Draw(t, "empty") == 0 {
				continue
			}
			r := new(Recorded)
			r.Event = *e
			switch f.Kind {
			case KindText:
				*f.Text(r) = rapid.String().Draw(t, f.Name)
			case KindCount:
				*f.Count(r) = rapid.Uint32().Draw(t, f.Name)
			case KindTime:
				*f.Time(r) = rapid.Int64().Draw(t, f.Name)
			case KindEventID:
				f.EventID(r)[0] = byte(i)
			case KindLine:
				*f.Line(r) = Line11
			case KindObject:
				*f.Object(r) = []byte(`{"a":1}`)
			}
			*e = r.Event
		}
		e.Absent = Absent(rapid.IntRange(0, 31).Draw(t, "absent"))
		if got, want := e.AppendCanonical(nil), walk([]byte(envelopeTag), e, canonicalFields); !bytes.Equal(got, want) {
			t.Fatalf("the canonical bytes are\n%q\nwant\n%q", got, want)
		}
		sum := sha256.Sum256(append(walk([]byte(contentTag), e, contentFields), e.Payload...))
		if got := e.ContentDigest(); got != [8]byte(sum[:8]) {
			t.Fatalf("the content digest is %x, want %x", got, sum[:8])
		}
	})
}
