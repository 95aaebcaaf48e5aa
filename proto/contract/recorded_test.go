package contract

import (
	"bytes"
	"crypto/sha256"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestFieldsOfRecorded: each part of a recorded event has one row, whose method finds it.
func TestFieldsOfRecorded(t *testing.T) {
	var s Recorded
	rows := map[any]string{}
	names := map[string]bool{}
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
		if names[f.Name] || names[f.Column] || rows[at] != "" {
			t.Errorf("%s, %s is a second row, also of %s", f.Name, f.Column, rows[at])
		}
		names[f.Name], names[f.Column], rows[at] = true, true, f.Name
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

// TestFieldsOfMessage: each field of an EventRecord has a row of its name.
func TestFieldsOfMessage(t *testing.T) {
	columns := map[string]bool{}
	for _, f := range Fields() {
		columns[f.Column] = true
	}
	var walk func(m protoreflect.MessageDescriptor, before string)
	walk = func(m protoreflect.MessageDescriptor, before string) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			name := before + strings.TrimSuffix(string(f.Name()), "_json")
			switch {
			case f.Message() != nil && f.Message().FullName() == "runlog.v1.Original":
				walk(f.Message(), name+"_")
			case !columns[name]:
				t.Errorf("%s has no row in the table of fields", f.FullName())
			}
		}
	}
	walk((&runlogv1.EventRecord{}).ProtoReflect().Descriptor(), "")
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

// TestFieldsOfTake: every field of a message is taken.
func TestFieldsOfTake(t *testing.T) {
	taken := map[string]bool{"payload": true, "original": true}
	for _, f := range messageFields {
		taken[f.Column] = true
	}
	all := (&runlogv1.EventRecord{}).ProtoReflect().Descriptor().Fields()
	for i := range all.Len() {
		if name := all.Get(i).Name(); !taken[strings.TrimSuffix(string(name), "_json")] {
			t.Errorf("%s is not taken", name)
		}
	}
}

// TestNumbersOfFields: each number that is stored is that of one field, and each field of an
// EventWrite but the payload is among the canonical bytes.
func TestNumbersOfFields(t *testing.T) {
	bodies, numbers := map[byte]string{}, map[byte]string{}
	for _, f := range Fields() {
		if other := bodies[f.Body]; f.Body != 0 && other != "" {
			t.Errorf("%s and %s have the number %d of a body", f.Name, other, f.Body)
		}
		if other := numbers[f.canonical]; f.canonical != 0 && other != "" {
			t.Errorf("%s and %s have the canonical number %d", f.Name, other, f.canonical)
		}
		bodies[f.Body], numbers[f.canonical] = f.Name, f.Name
	}
	for _, number := range []byte{fieldAppendedBy, fieldAppendedByTokenID, fieldOriginalPersistedAt, fieldOriginalSource} {
		if name := numbers[number]; name != "" {
			t.Errorf("%s has the canonical number %d, which the record digest has for another field", name, number)
		}
	}
	all := (&runlogv1.EventWrite{}).ProtoReflect().Descriptor().Fields()
	for i := range all.Len() {
		f := all.Get(i)
		name := strings.TrimSuffix(string(f.Name()), "_json")
		row := slices.IndexFunc(recordedFields, func(row Field) bool { return row.Column == name })
		if row < 0 || recordedFields[row].canonical == 0 && name != "payload" {
			t.Errorf("%s has no canonical number", f.FullName())
		}
	}
	if len(jsonFields) > 64 {
		t.Errorf("%d members of an event do not fit into the bits of an eventReader", len(jsonFields))
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
		payload := e.PayloadDigest()
		sum := sha256.Sum256(append(walk([]byte(contentTag), e, contentFields), payload[:]...))
		if got := e.ContentDigest(payload); got != [8]byte(sum[:8]) {
			t.Fatalf("the content digest is %x, want %x", got, sum[:8])
		}
	})
}
