package main

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// oneLine makes text safe to show: what producers wrote must not move the cursor or start a line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, text)
}

// cut shortens text to width characters; 0 leaves it whole.
func cut(text string, width int) string {
	if width <= 0 || len(text) <= width {
		return text
	}
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}

// stamp shows a time in UTC to the millisecond, as wide for one as for the other.
func stamp(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// elapsed shows the time between two stamps, or nothing while one is missing.
func elapsed(from, to *timestamppb.Timestamp) string {
	if from == nil || to == nil {
		return ""
	}
	return to.AsTime().Sub(from.AsTime()).Round(time.Millisecond).String()
}

// number shows n with a comma every three digits.
func number[T int | int64 | uint32 | uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

// plural is "1 event", "2 events".
func plural[T int | int64 | uint32 | uint64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}
