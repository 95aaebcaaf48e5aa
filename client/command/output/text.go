package output

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// OneLine makes text safe to show: it replaces line breaks by blanks, and escapes what does not
// print. So text of a producer can neither move the cursor nor hide a difference between two names.
func OneLine(text string) string {
	if !strings.ContainsFunc(text, unseen) {
		return strings.ToValidUTF8(text, string(unicode.ReplacementChar))
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			out.WriteByte(' ')
		case unseen(r):
			out.Write(escaped(nil, r))
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// blankBraille is a blank that Unicode counts as a symbol.
const blankBraille = '\u2800'

// unseen reports whether a character does not print, or shows nothing: control and format
// characters, blanks but the one of ASCII, fillers, and selectors of variants.
func unseen(r rune) bool {
	return !unicode.IsPrint(r) || r == blankBraille ||
		r >= utf8.RuneSelf && unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Cut shortens text to width characters; 0 leaves it whole.
func Cut(text string, width int) string {
	if width <= 0 || len(text) <= width {
		return text
	}
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}

// Stamp formats a time in UTC to the millisecond, always with the same width; empty for nil.
func Stamp(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// Elapsed formats the time between two stamps; empty while one is missing.
func Elapsed(from, to *timestamppb.Timestamp) string {
	if from == nil || to == nil {
		return ""
	}
	return to.AsTime().Sub(from.AsTime()).Round(time.Millisecond).String()
}

// Number formats n, which is not negative, with a comma every three digits.
func Number[T int | int64 | uint32 | uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	text := digits[:(len(digits)-1)%3+1]
	for rest := digits[len(text):]; rest != ""; rest = rest[3:] {
		text += "," + rest[:3]
	}
	return text
}

// Plural formats a count of a noun: "1 event", "2 events".
func Plural[T int | int64 | uint32 | uint64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}

// Brief rounds a duration to the millisecond, a longer one to a tenth of a second or to a second.
func Brief(d time.Duration) string {
	switch {
	case d < time.Second && d > -time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute && d > -time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// Signed is Brief with a plus in front of positive durations.
func Signed(d time.Duration) string {
	if d.Round(time.Millisecond) > 0 {
		return "+" + Brief(d)
	}
	return Brief(d)
}

// Size formats bytes with one decimal, in the largest unit that they reach.
func Size(bytes uint64) string {
	for _, u := range binaryUnits {
		if bytes >= uint64(u.size) {
			return strconv.FormatFloat(float64(bytes)/float64(u.size), 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatUint(bytes, 10) + " B"
}

// Dash returns text on one line; a dash if it is empty.
func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return OneLine(text)
}

// Attempt formats the logical attempt and, if the platform has retried it, the engine's: "1" or
// "1 (3)".
func Attempt(logical, engine uint32) string {
	text := strconv.FormatUint(uint64(logical), 10)
	if engine > 1 {
		text += " (" + strconv.FormatUint(uint64(engine), 10) + ")"
	}
	return text
}

// Author formats the identity that appended a record and, if it presented an API token, the end of
// the token's id: "token:ci#8f3a09c1". Ids begin with their time, so their ends differ sooner.
func Author(record *runlogv1.EventRecord) string {
	id := record.GetAppendedByTokenId()
	if id == "" {
		return record.GetAppendedBy()
	}
	return record.GetAppendedBy() + "#" + id[max(0, len(id)-8):]
}

// Words joins the parts that are not empty by two blanks.
func Words(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "  ")
}
