// Package contracttest makes events for tests of their forms. It finds the fields that it draws in
// Go types and descriptors of messages, and not in the table of fields: what the table forgets, a
// test sees. Changes alone follows the table.
package contracttest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"runlog/proto/contract"
)

// Each visits the fields of a recorded event, with the name in Go and a pointer. It leaves out what
// no form has: what checking found.
func Each(r *contract.Recorded, visit func(name string, at any)) {
	each(reflect.ValueOf(r).Elem(), "", visit)
}

func each(v reflect.Value, before string, visit func(name string, at any)) {
	for i := range v.NumField() {
		field, part := v.Type().Field(i), v.Field(i)
		switch name := before + field.Name; {
		case name == "AttemptAssigned" || name == "KeyDerived" || name == "Warnings":
		case field.Anonymous:
			each(part, before, visit)
		case part.Kind() == reflect.Struct:
			each(part, name+".", visit)
		default:
			visit(name, part.Addr().Interface())
		}
	}
}

// Whole returns an event with something else in every field. What a field has follows from its name
// alone, so that a new field changes no other.
func Whole() *contract.Recorded {
	r := new(contract.Recorded)
	Each(r, func(name string, at any) {
		sum := sha256.Sum256([]byte(name))
		n := binary.BigEndian.Uint32(sum[:]) | 1
		switch at := at.(type) {
		case *string:
			*at = name
		case *uint32:
			*at = n
		case *uint64:
			*at = uint64(n)
		case *int64:
			*at = 1_770_805_800_000_000_000 + int64(n)
		case *contract.EventID:
			copy(at[:], sum[:])
		case *contract.Salt:
			copy(at[:], sum[:])
		case *contract.Digest:
			*at = sum
		case *contract.Line:
			*at = contract.Line11
		case *contract.Absent:
			*at = contract.AbsentTenant | contract.AbsentEnvironment
		case *[]byte:
			*at = fmt.Appendf(nil, `{"of": %q}`, name)
		default:
			panic(fmt.Sprintf("contracttest: %s is a %T, which no test makes: add a case", name, at))
		}
	})
	return r
}

// Times are those that a form may get wrong, and others.
var Times = rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, -1, math.MinInt64, math.MaxInt64, 1e9, 1_500_000_000, 1_000_000}))

// Draw draws an event with any values, which need not pass the contract's rules. texts and objects
// are for fields of these types.
func Draw(t *rapid.T, texts *rapid.Generator[string], objects *rapid.Generator[[]byte]) *contract.Recorded {
	r := new(contract.Recorded)
	Each(r, func(name string, at any) {
		switch at := at.(type) {
		case *string:
			*at = texts.Draw(t, name)
		case *uint32:
			*at = rapid.Uint32().Draw(t, name)
		case *uint64:
			*at = rapid.Uint64().Draw(t, name)
		case *int64:
			*at = Times.Draw(t, name)
		case *contract.EventID:
			copy(at[:], rapid.SliceOfN(rapid.Byte(), len(at), len(at)).Draw(t, name))
		case *contract.Salt:
			copy(at[:], rapid.SliceOfN(rapid.Byte(), len(at), len(at)).Draw(t, name))
		case *contract.Digest:
			copy(at[:], rapid.SliceOfN(rapid.Byte(), len(at), len(at)).Draw(t, name))
		case *contract.Line:
			*at = rapid.SampledFrom([]contract.Line{contract.Line2, contract.Line11}).Draw(t, name)
		case *contract.Absent:
			*at = contract.Absent(rapid.SampledFrom([]int{0, 0, 1, 31, 6, 24, 9}).Draw(t, name))
		case *[]byte:
			*at = objects.Draw(t, name)
		default:
			panic(fmt.Sprintf("contracttest: %s is a %T, which no test draws: add a case", name, at))
		}
	})
	return r
}

// DrawMessage draws every field of a message; those that may be absent, now and then. Of the forms
// of a payload it has the bytes.
func DrawMessage(t *rapid.T, m proto.Message, texts *rapid.Generator[string], objects *rapid.Generator[[]byte]) {
	message := m.ProtoReflect()
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		if of := f.ContainingOneof(); of != nil && !of.IsSynthetic() && f.Kind() != protoreflect.BytesKind {
			continue
		}
		if f.HasPresence() && !rapid.Bool().Draw(t, "has "+name) {
			continue
		}
		switch {
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			list := message.Mutable(f).List()
			for range rapid.IntRange(0, 2).Draw(t, "of "+name) {
				list.Append(protoreflect.ValueOfString(texts.Draw(t, name)))
			}
		case f.IsList() || f.IsMap():
			panic("contracttest: " + name + " is of a type that no test draws: add a case")
		case f.Message() != nil:
			DrawMessage(t, message.Mutable(f).Message().Interface(), texts, objects)
		default:
			message.Set(f, drawScalar(t, f, texts, objects))
		}
	}
}

func drawScalar(t *rapid.T, f protoreflect.FieldDescriptor, texts *rapid.Generator[string], objects *rapid.Generator[[]byte]) protoreflect.Value {
	name := string(f.Name())
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts.Draw(t, name))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(objects.Draw(t, name))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, name))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, name))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, name))
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(Times.Draw(t, name))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, name))
	}
	panic("contracttest: " + name + " is of a type that no test draws: add a case")
}
