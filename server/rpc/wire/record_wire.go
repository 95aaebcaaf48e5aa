package wire

import (
	"cmp"
	"encoding/hex"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// The fields of EventRecord (event.proto) that are not one field of a record, and those of Original
// and of google.protobuf.Timestamp.
const (
	fieldPayloadJSON = 18
	fieldOriginal    = 28

	fieldOriginalPersistedAt = 1
	fieldOriginalSource      = 2

	fieldSeconds = 1
	fieldNanos   = 2
)

// recordField is a field of an EventRecord on the wire.
type recordField struct {
	contract.MessageField // of kind 0: original
	// tag has at most two bytes; a second byte 0 is none.
	tag [2]byte
}

// recordFields are those of an EventRecord, in the order of their numbers.
var recordFields = func() (all []recordField) {
	fields := append(contract.MessageFields(), contract.MessageField{Wire: fieldOriginal})
	for _, f := range contract.Fields() {
		if f.Name == "payload" {
			fields = append(fields, contract.MessageField{Field: f, Wire: fieldPayloadJSON})
		}
	}
	slices.SortFunc(fields, func(a, b contract.MessageField) int { return cmp.Compare(a.Wire, b.Wire) })
	for _, f := range fields {
		kind := protowire.BytesType
		if f.Kind == contract.KindCount || f.Kind == contract.KindNumber {
			kind = protowire.VarintType
		}
		tag := protowire.AppendTag(nil, f.Wire, kind)
		if len(tag) > 2 {
			panic("wire: a field with a number over 2047: " + f.Name)
		}
		r := recordField{MessageField: f}
		copy(r.tag[:], tag)
		all = append(all, r)
	}
	return all
}()

func (f *recordField) appendTag(dst []byte) []byte {
	if f.tag[1] == 0 {
		return append(dst, f.tag[0])
	}
	return append(dst, f.tag[0], f.tag[1])
}

func (f *recordField) appendText(dst []byte, text string) []byte {
	return append(appendLength(f.appendTag(dst), len(text)), text...)
}

func appendLength(dst []byte, n int) []byte {
	if n < 0x80 {
		return append(dst, byte(n))
	}
	return protowire.AppendVarint(dst, uint64(n))
}

// AppendRecord appends the wire form of what Record returns. It makes no message: a consumer gets
// hundreds of thousands of events a second.
func AppendRecord(dst []byte, r *storage.Record, form runlogv1.PayloadForm_Form) ([]byte, error) {
	if form == runlogv1.PayloadForm_STRUCT {
		m, err := Record(r, form)
		if err != nil {
			return dst, err
		}
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	}
	return appendFields(dst, &r.Recorded), nil
}

func appendFields(dst []byte, r *contract.Recorded) []byte {
	for i := range recordFields {
		f := &recordFields[i]
		switch f.Kind {
		case contract.KindText:
			if text := *f.Text(r); text != "" {
				dst = f.appendText(dst, text)
			}
		case contract.KindCount:
			if n := *f.Count(r); n != 0 {
				dst = protowire.AppendVarint(f.appendTag(dst), uint64(n))
			}
		case contract.KindNumber:
			if n := *f.Number(r); n != 0 {
				dst = protowire.AppendVarint(f.appendTag(dst), n)
			}
		case contract.KindTime:
			dst = appendTime(dst, f.Wire, *f.Time(r))
		case contract.KindEventID:
			dst = f.EventID(r).Append(append(f.appendTag(dst), contract.EventIDText))
		case contract.KindLine:
			dst = f.appendText(dst, f.Line(r).String())
		case contract.KindSalt:
			dst = hex.AppendEncode(appendLength(f.appendTag(dst), 2*len(f.Salt(r))), f.Salt(r)[:])
		case contract.KindDigest:
			dst = hex.AppendEncode(appendLength(f.appendTag(dst), 2*len(f.Digest(r))), f.Digest(r)[:])
		case contract.KindNames:
			for k := range inheritable {
				if *f.Names(r)&inheritable[k].Absent != 0 {
					dst = f.appendText(dst, inheritable[k].Name)
				}
			}
		case contract.KindObject:
			if object := *f.Object(r); len(object) > 0 || !f.Optional {
				dst = append(appendLength(f.appendTag(dst), len(object)), object...)
			}
		case 0:
			if o := &r.Original; o.PersistedAt != 0 {
				var stack [64]byte
				dst = appendText(dst, f.Wire, appendText(appendTime(stack[:0], fieldOriginalPersistedAt, o.PersistedAt), fieldOriginalSource, o.Source))
			}
		default:
			panic("wire: a field that no message can have: " + f.Name)
		}
	}
	return dst
}

func appendText[T string | []byte](dst []byte, number protowire.Number, text T) []byte {
	if len(text) == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(text)))
	return append(dst, text...)
}

func appendUint(dst []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, number, protowire.VarintType)
	return protowire.AppendVarint(dst, n)
}

// appendTime appends a google.protobuf.Timestamp.
func appendTime(dst []byte, number protowire.Number, ns int64) []byte {
	at := time.Unix(0, ns)
	var stack [24]byte
	b := appendUint(stack[:0], fieldSeconds, uint64(at.Unix()))
	b = appendUint(b, fieldNanos, uint64(at.Nanosecond()))
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendBytes(dst, b)
}
