package export

import (
	"strconv"

	"runlog/proto/contract"
)

// fields are those of a record, in the order of columns.
var fields = contract.Fields()

// columns are those of CSV and of Parquet, in their order.
var columns = func() (names []string) {
	for i := range fields {
		names = append(names, fields[i].Column)
	}
	return names
}()

var (
	payloadColumn    = columnOf("payload")
	originalAtColumn = columnOf("original.persistedAt")
	sourceColumn     = columnOf("original.source")
)

func columnOf(name string) int {
	for i := range fields {
		if fields[i].Name == name {
			return i
		}
	}
	panic("export: no field " + name)
}

// inheritable are the fields that can be absent, in the order in which records name them.
var inheritable = func() (some []contract.Field) {
	for _, f := range fields {
		if f.Absent != 0 {
			some = append(some, f)
		}
	}
	return some
}()

// The expected forms of a value.
const (
	wantText    = "a JSON string"
	wantUUID    = "a UUID of 36 characters in lower case"
	wantSalt    = "32 lower-case hexadecimal digits"
	wantDigest  = "64 lower-case hexadecimal digits"
	wantTime    = "a time such as 2026-02-11T10:30:00.123Z"
	wantNumber  = "a whole number from 1 on"
	wantVersion = `"2.0.0" or "1.1"`
	wantNames   = "a list of tenantId, projectId, environmentId, planId and planVersion"
	wantObject  = "a JSON object"
	wantBase64  = "a JSON object in base64"

	wantOriginal = "an object of a time persistedAt and, if there is one, a string source"
	wantNoSource = "empty, though the event has no original_persisted_at"
)

// parseField sets a field of a record from its text, or returns the expected form. A text that is a
// JSON object is for CSV and Parquet: lines have objects as they are.
func parseField(f *contract.Field, text string, r *contract.Recorded) (want string) {
	var ok bool
	switch f.Kind {
	case contract.KindText:
		*f.Text(r), ok = text, true
	case contract.KindCount:
		var n uint64
		n, ok = parseNumber(text, 32)
		*f.Count(r), want = uint32(n), wantNumber
	case contract.KindNumber:
		*f.Number(r), ok = parseNumber(text, 64)
		want = wantNumber
	case contract.KindTime:
		want, ok = wantTime, parseTime(f.Time(r), text)
		// The source of an event cannot have stored it before 1970.
		ok = ok && (!f.Optional || *f.Time(r) > 0)
	case contract.KindEventID:
		want, ok = wantUUID, contract.ParseEventID(f.EventID(r), text)
	case contract.KindLine:
		want, ok = wantVersion, parseContract(f.Line(r), text)
	case contract.KindSalt:
		want, ok = wantSalt, contract.ParseSalt(f.Salt(r), text)
	case contract.KindDigest:
		want, ok = wantDigest, contract.ParseDigest(f.Digest(r), text)
	case contract.KindNames:
		want, ok = wantNames, parseNames(f.Names(r), text)
	case contract.KindObject:
		if ok = true; text != "" {
			*f.Object(r) = []byte(text)
		}
	default:
		panic("export: a field that has no text: " + f.Name)
	}
	if ok {
		return ""
	}
	return want
}

// appendPlain appends the text of a field that is a number, a time, an id, a salt or a digest, or
// that names a contract line. No form quotes within it.
func appendPlain(dst []byte, f *contract.Field, r *contract.Recorded) []byte {
	switch f.Kind {
	case contract.KindCount:
		return strconv.AppendUint(dst, uint64(*f.Count(r)), 10)
	case contract.KindNumber:
		return strconv.AppendUint(dst, *f.Number(r), 10)
	case contract.KindTime:
		return appendTime(dst, *f.Time(r))
	case contract.KindEventID:
		return appendUUID(dst, *f.EventID(r))
	case contract.KindLine:
		return append(dst, f.Line(r).String()...)
	case contract.KindSalt:
		return appendHex(dst, f.Salt(r)[:])
	case contract.KindDigest:
		return appendHex(dst, f.Digest(r)[:])
	}
	panic("export: a field that has no plain text: " + f.Name)
}
