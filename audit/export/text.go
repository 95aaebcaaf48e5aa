package export

import (
	"encoding/hex"
	"strconv"
	"time"

	"runlog/proto/contract"
)

// The forms that values have as text, in JSON lines and in CSV. Each is written in one way and read
// in that way alone.

// appendUUID appends the 36 characters of a UUID.
func appendUUID(dst []byte, id contract.EventID) []byte {
	dst = append(hex.AppendEncode(dst, id[0:4]), '-')
	dst = append(hex.AppendEncode(dst, id[4:6]), '-')
	dst = append(hex.AppendEncode(dst, id[6:8]), '-')
	dst = append(hex.AppendEncode(dst, id[8:10]), '-')
	return hex.AppendEncode(dst, id[10:16])
}

// appendHex appends lower-case hexadecimal digits.
func appendHex(dst, src []byte) []byte { return hex.AppendEncode(dst, src) }

// appendNames appends the names of inherited fields, each in quotes, with separators.
func appendNames(dst []byte, absent contract.Absent, quote, separator string) []byte {
	if absent == 0 {
		return dst
	}
	between := ""
	for i := range inheritable {
		if f := &inheritable[i]; absent&f.Absent != 0 {
			dst = append(append(append(append(dst, between...), quote...), f.Name...), quote...)
			between = separator
		}
	}
	return dst
}

// parseContract reads the contract line of a record, which always names it.
func parseContract(line *contract.Line, text string) (ok bool) {
	*line, ok = contract.ParseLine(text)
	return ok && text != ""
}

// appendTime appends nanoseconds since 1970 as RFC 3339 in UTC, with 0, 3, 6 or 9 digits of the
// second's fraction, as proto-JSON does.
func appendTime(dst []byte, ns int64) []byte {
	at := time.Unix(0, ns).UTC()
	year, month, day := at.Date()
	hour, minute, second := at.Clock()
	dst = append(appendDigits(dst, year, 4), '-')
	dst = append(appendDigits(dst, int(month), 2), '-')
	dst = append(appendDigits(dst, day, 2), 'T')
	dst = append(appendDigits(dst, hour, 2), ':')
	dst = append(appendDigits(dst, minute, 2), ':')
	dst = appendDigits(dst, second, 2)
	switch fraction := at.Nanosecond(); {
	case fraction == 0:
	case fraction%1e6 == 0:
		dst = appendDigits(append(dst, '.'), fraction/1e6, 3)
	case fraction%1e3 == 0:
		dst = appendDigits(append(dst, '.'), fraction/1e3, 6)
	default:
		dst = appendDigits(append(dst, '.'), fraction, 9)
	}
	return append(dst, 'Z')
}

func appendDigits(dst []byte, n, width int) []byte {
	var digits [9]byte
	for i := width - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:width]...)
}

// parseTime parses the output of appendTime.
func parseTime(ns *int64, text string) bool {
	const seconds = len("2006-01-02T15:04:05")
	if len(text) <= seconds || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' {
		return false
	}
	ok := true
	part := func(from, to int) (n int) {
		n, is := digits(text[from:to])
		ok = ok && is
		return n
	}
	year, month, day := part(0, 4), part(5, 7), part(8, 10)
	hour, minute, second := part(11, 13), part(14, 16), part(17, seconds)
	fraction := 0
	if n := len(text) - seconds; n > 1 {
		if text[seconds] != '.' || n != 5 && n != 8 && n != 11 {
			return false
		}
		fraction = part(seconds+1, len(text)-1)
		ok = ok && fraction%1000 != 0 // otherwise it has a form with fewer digits
		for ; n < 11; n += 3 {
			fraction *= 1000
		}
	}
	at := time.Date(year, time.Month(month), day, hour, minute, second, fraction, time.UTC)
	*ns = at.UnixNano()
	// A time outside of int64 nanoseconds or of the calendar formats differently.
	back := time.Unix(0, *ns).UTC()
	return ok && text[len(text)-1] == 'Z' && hour < 24 && minute < 60 && second < 60 &&
		back.Year() == year && int(back.Month()) == month && back.Day() == day
}

// digits reads at most nine decimal digits.
func digits(text string) (n int, ok bool) {
	ok = true
	for i := range len(text) {
		c := text[i] - '0'
		ok = ok && c < 10
		n = n*10 + int(c)
	}
	return n, ok
}

// parseNumber reads a decimal number from 1 on, without leading zeros.
func parseNumber(text string, bits int) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, bits)
	return n, err == nil && text[0] != '0' && text[0] != '+'
}
