package session

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client/command/output"
)

// MomentHelp documents the times that Moment takes.
const MomentHelp = TimesHelp + `
  now                        the time of the call`

// TimesHelp is MomentHelp without "now", for flags that give the word another meaning.
const TimesHelp = `  2026-02-11T10:30:00Z       RFC 3339, with a fraction of the second and any offset, such as +01:00
  2026-02-11T10:30           without an offset: UTC; also 2026-02-11T10:30:00 or with a blank for the T
  2026-02-11                 midnight in UTC, when the day begins
  today  yesterday           the same, of the day that it is now in UTC
  -5m  -24h  -7d  -1w2d      this long before now, by the clock of this machine: s, m, h, d (24 h) and w`

// layouts of a time, besides RFC 3339. A time without an offset is in UTC, as all times that the
// command line prints.
var layouts = [...]string{
	"2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04Z07:00",
	"2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly,
}

// Moment returns the time that a flag names, as MomentHelp documents it. It is the one parser of
// times on the command line.
func Moment(flag, text string, now time.Time) (*timestamppb.Timestamp, error) {
	return moment(flag, text, now, "today, -5m or -7d", "; -%s is this long before now")
}

// moment is Moment with examples of times, and with a hint at how to write a relative time.
func moment(flag, text string, now time.Time, examples, hint string) (*timestamppb.Timestamp, error) {
	at, ok := parseMoment(text, now)
	switch {
	case !ok:
		if _, relative := ago("-" + text); relative {
			hint = fmt.Sprintf(hint, text)
		} else {
			hint = ""
		}
		return nil, output.UsageError("--%s %q is no time; want one such as 2026-02-11T10:30:00Z, 2026-02-11T10:30 (UTC), 2026-02-11, %s%s", flag, text, examples, hint)
	case at.Before(time.Unix(0, 0)) || at.After(time.Unix(0, math.MaxInt64)):
		return nil, output.UsageError("--%s %q is not between 1970 and 2262, the range of persistedAt", flag, text)
	}
	return timestamppb.New(at), nil
}

// RunMomentHelp documents the moments that RunMoment takes.
const RunMomentHelp = `  12                         after the event with this runSeq; 0: before the first one
  6f1c2a9d0b7e4c53-48211     a position of an answer, with everything that was committed up to it
` + MomentHelp

// RunMoment returns the moment of a run that a flag names, as RunMomentHelp documents it, in the
// form of the API: what is neither a runSeq nor a position is a time.
func RunMoment(flag, text string, now time.Time) (string, error) {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		return text, nil
	}
	if in, digits, ok := strings.Cut(text, "-"); ok && len(in) == 16 && strings.Trim(in, "0123456789abcdef") == "" && strings.Trim(digits, "0123456789") == "" {
		return text, nil
	}
	at, err := moment(flag, text, now, "today or -5m, a runSeq, or a position", "; -%s is this long before now")
	if err != nil {
		return "", err
	}
	return at.AsTime().Format(time.RFC3339Nano), nil
}

// Ahead is Moment for a time that may lie ahead. It also takes +10m, this long from now.
func Ahead(flag, text string, now time.Time) (*timestamppb.Timestamp, error) {
	if ahead, ok := strings.CutPrefix(text, "+"); ok {
		if after, ok := ago("-" + ahead); ok {
			return timestamppb.New(now.Add(after)), nil
		}
	}
	return moment(flag, text, now, "+10m or +7d", "; +%s is this long from now")
}

func parseMoment(text string, now time.Time) (at time.Time, ok bool) {
	midnight := now.UTC().Truncate(24 * time.Hour) // UTC has no summer time
	switch text {
	case "now":
		return now, true
	case "today":
		return midnight, true
	case "yesterday":
		return midnight.AddDate(0, 0, -1), true
	}
	if back, ok := ago(text); ok {
		return now.Add(-back), true
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, true
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return at, false
}

// units of relative times.
var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// ago parses a time relative to now: a minus, then numbers with a unit each.
func ago(text string) (total time.Duration, ok bool) {
	rest, ok := strings.CutPrefix(text, "-")
	if !ok || rest == "" {
		return 0, false
	}
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == len(rest) {
			return 0, false
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 32)
		unit := units[rest[digits]]
		if err != nil || unit == 0 || time.Duration(n) > (1<<62-total)/unit {
			return 0, false
		}
		total += time.Duration(n) * unit
		rest = rest[digits+1:]
	}
	return total, true
}
