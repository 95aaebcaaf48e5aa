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

// brief shows a duration to the millisecond, or what matters of a longer one.
func brief(d time.Duration) string {
	switch {
	case d < time.Second && d > -time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute && d > -time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// signed is brief with a sign.
func signed(d time.Duration) string {
	if d.Round(time.Millisecond) > 0 {
		return "+" + brief(d)
	}
	return brief(d)
}

// sizeText shows bytes in the unit that leaves the fewest digits.
func sizeText(bytes uint64) string {
	for _, u := range byteUnits {
		if bytes >= uint64(u.size) {
			return strconv.FormatFloat(float64(bytes)/float64(u.size), 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatUint(bytes, 10) + " B"
}
