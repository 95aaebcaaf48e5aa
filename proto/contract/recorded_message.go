package contract

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// MessageField is a field of a message of the wire that is one of a Recorded.
type MessageField struct {
	Field
	// Wire is the number of the field in the message.
	Wire protowire.Number
	// Offset is where the field is in the Go struct of the message.
	Offset uintptr
	// Pointer: the message has a text by a pointer, which is nil without one.
	Pointer bool
}

var (
	messageFields = mustFields(reflect.TypeFor[runlogv1.EventRecord](), true)
	writtenFields = mustFields(reflect.TypeFor[runlogv1.EventWrite](), false)
)

// MessageFields returns all fields of an EventRecord but the payload and original, in the order of
// their numbers. The caller may change the slice.
func MessageFields() []MessageField { return slices.Clone(messageFields) }

// WrittenFields returns all fields of an EventWrite but the payload, in the order of their numbers.
// The caller may change the slice.
func WrittenFields() []MessageField { return slices.Clone(writtenFields) }

func mustFields(message reflect.Type, recorded bool) []MessageField {
	all, err := fieldsOfMessage(message, recordedFields, recorded)
	if err != nil {
		panic(fmt.Sprintf("contract: the table of fields (recordedFields) and %v: %v", message, err))
	}
	return all
}

// fieldsOfMessage reads the fields of a message from its generated type: each is the row with its
// name. A message of a recorded event has all rows, and one of a producer those of canonical
// fields. The error has all differences, each with what to do about it.
func fieldsOfMessage(message reflect.Type, rows []Field, recorded bool) (all []MessageField, err error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	found := map[string]bool{"payload": true} // one of two forms: no field of the Go type
	for i := range message.NumField() {
		field := message.Field(i)
		tag := field.Tag.Get("protobuf") // such as bytes,40,opt,name=extensions_json
		_, name, tagged := strings.Cut(tag, ",name=")
		name, _, _ = strings.Cut(name, ",")
		if !tagged || recorded && field.Type == reflect.TypeFor[*runlogv1.Original]() {
			continue // of another purpose, or a message with rows of its own
		}
		at := slices.IndexFunc(rows, func(f Field) bool { return f.Column == strings.TrimSuffix(name, "_json") })
		if at < 0 {
			fault("%s has no row: add one", name)
			continue
		}
		m := MessageField{Field: rows[at], Offset: field.Offset, Pointer: field.Type.Kind() == reflect.Pointer}
		found[m.Column] = true
		number, err := strconv.Atoi(strings.Split(tag, ",")[1])
		m.Wire = protowire.Number(number)
		switch want := m.Kind.inMessage(m.Pointer); {
		case err != nil || number < 1 || number >= WireNumbers:
			fault("%s has the number %d, where there is room for those from 1 to %d: make more (WireNumbers)", name, number, WireNumbers-1)
		case field.Type != want:
			fault("%s is %v in the message and must be %v: give both the same type; what is stored keeps the one that it has", name, field.Type, want)
		case !recorded && m.canonical == 0:
			fault("%s has no canonical number, so that no digest covers what a producer says: give its row one", name)
		}
		all = append(all, m)
	}
	for i := range rows {
		f := &rows[i]
		if !found[f.Column] && !strings.HasPrefix(f.Name, "original.") && (recorded || f.canonical != 0) {
			fault("the message has no %s, which has a row: add it to event.proto and run make generate, or remove the row", f.Column)
		}
	}
	slices.SortFunc(all, func(a, b MessageField) int { return cmp.Compare(a.Wire, b.Wire) })
	return all, errors.Join(faults...)
}

// inMessage returns the Go type that a field of the kind has in a message.
func (k Kind) inMessage(pointer bool) reflect.Type {
	switch k {
	case KindCount:
		return reflect.TypeFor[uint32]()
	case KindNumber:
		return reflect.TypeFor[uint64]()
	case KindTime:
		return reflect.TypeFor[*timestamppb.Timestamp]()
	case KindNames:
		return reflect.TypeFor[[]string]()
	case KindObject:
		return reflect.TypeFor[[]byte]()
	case KindText:
		if pointer {
			return reflect.TypeFor[*string]()
		}
	}
	return reflect.TypeFor[string]() // digests, salts and ids too
}

// Take sets r to what a message has, which must have its payload as JSON bytes. It returns false if
// no authority could have recorded the event so. r shares its texts and objects with m.
func (r *Recorded) Take(m *runlogv1.EventRecord) bool {
	*r = Recorded{}
	form, ok := m.GetPayloadForm().(*runlogv1.EventRecord_PayloadJson)
	if !ok {
		return false
	}
	r.Payload = form.PayloadJson
	for i := range messageFields {
		f := &messageFields[i]
		at := unsafe.Add(unsafe.Pointer(m), f.Offset)
		switch f.Kind {
		case KindText:
			if !f.Pointer {
				*f.Text(r) = *(*string)(at)
			} else if text := *(**string)(at); text != nil {
				*f.Text(r) = *text
			}
		case KindCount:
			*f.Count(r) = *(*uint32)(at)
			ok = ok && *f.Count(r) > 0
		case KindNumber:
			*f.Number(r) = *(*uint64)(at)
		case KindTime:
			t := *(**timestamppb.Timestamp)(at)
			*f.Time(r) = t.GetSeconds()*1e9 + int64(t.GetNanos())
			ok = ok && t != nil
		case KindEventID:
			ok = ParseEventID(f.EventID(r), *(*string)(at)) && ok
		case KindLine:
			text, known := *(*string)(at), false
			*f.Line(r), known = ParseLine(text)
			ok = ok && known && text != ""
		case KindSalt:
			ok = ParseSalt(f.Salt(r), *(*string)(at)) && ok
		case KindDigest:
			ok = ParseDigest(f.Digest(r), *(*string)(at)) && ok
		case KindNames:
			for _, name := range *(*[]string)(at) {
				ok = Inherit(f.Names(r), name) && ok
			}
		case KindObject:
			*f.Object(r) = *(*[]byte)(at)
		}
	}
	if o := m.GetOriginal(); o != nil {
		r.Original.PersistedAt = o.GetPersistedAt().GetSeconds()*1e9 + int64(o.GetPersistedAt().GetNanos())
		r.Original.Source = o.GetSource()
	}
	return ok && len(r.Payload) > 0 && r.RunSeq > 0 && r.RunSeq <= MaxRunSeq
}

// Inherit adds the bit of the field of a name. It returns false for a name of no such field, and
// for one that is there already.
func Inherit(absent *Absent, name string) bool {
	for i := range recordedFields {
		if f := &recordedFields[i]; f.Absent != 0 && f.Name == name {
			twice := *absent&f.Absent != 0
			*absent |= f.Absent
			return !twice
		}
	}
	return false
}

// nibbles has the value of each lower-case hexadecimal digit, and 0xff for other bytes.
var nibbles = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	return t
}()

// parseHex reads lower-case hexadecimal digits, two for each byte of dst.
func parseHex(dst []byte, text string) bool {
	if len(text) != 2*len(dst) {
		return false
	}
	var bad byte
	for i := range dst {
		high, low := nibbles[text[2*i]], nibbles[text[2*i+1]]
		dst[i] = high<<4 | low&0xf
		bad |= high | low
	}
	return bad < 16
}

// ParseEventID reads a UUID in the form of EventID.String, and no other.
func ParseEventID(id *EventID, text string) bool {
	return len(text) == EventIDText && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' &&
		parseHex(id[0:4], text[0:8]) && parseHex(id[4:6], text[9:13]) && parseHex(id[6:8], text[14:18]) &&
		parseHex(id[8:10], text[19:23]) && parseHex(id[10:16], text[24:36])
}

// ParseSalt reads a salt in the form of Salt.String, and no other.
func ParseSalt(s *Salt, text string) bool { return parseHex(s[:], text) }

// ParseDigest reads a digest in the form of Digest.String, and no other.
func ParseDigest(d *Digest, text string) bool { return parseHex(d[:], text) }
