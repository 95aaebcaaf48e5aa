package contract

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

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
