package schema

import "runlog/proto/contract/jsontext"

// textForm is a form that a string must have: as a schema writes it, and as a check.
type textForm struct {
	pattern, format string
	matches         func(text []byte) bool
	help            string
}

// textForms holds the forms that a payload schema may demand. The pattern beside date-time is for
// validators that treat formats as annotations, as draft 2020-12 allows. It covers RFC 3339 except
// the ranges, the days of the months and the leap seconds.
var textForms = [...]textForm{
	{
		pattern: "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
		format:  "date-time",
		matches: isDateTime,
		help:    "a time in RFC 3339, such as 2026-02-11T10:30:00.123Z",
	},
	{
		pattern: "^[0-9a-fA-F]{64}$",
		matches: isSHA256,
		help:    "64 hexadecimal digits",
	},
}

func isSHA256(text []byte) bool {
	for _, c := range text {
		digit, letter := '0' <= c && c <= '9', 'a' <= c|0x20 && c|0x20 <= 'f'
		if !digit && !letter {
			return false
		}
	}
	return len(text) == 64
}

// isDateTime reports whether a text is a date-time of RFC 3339, section 5.6. A second of 60 is
// legal only at the end of a UTC day; isDateTime does not know which days had a leap second.
func isDateTime(text []byte) bool {
	const seconds = len("2006-01-02T15:04:05")
	if len(text) <= seconds || text[4] != '-' || text[7] != '-' || text[10]|0x20 != 't' || text[13] != ':' || text[16] != ':' {
		return false
	}
	year, month, day := twoDigits(text)*100+twoDigits(text[2:]), twoDigits(text[5:]), twoDigits(text[8:])
	hour, minute, second := twoDigits(text[11:]), twoDigits(text[14:]), twoDigits(text[17:])
	// A number with a character that is no digit is far below zero.
	if year < 0 || month < 1 || day < 1 || day > daysIn(year, month) {
		return false
	}
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 {
		return false
	}
	zone := text[seconds:]
	if zone[0] == '.' {
		end := jsontext.SkipDigits(zone, 1)
		if end == 1 {
			return false
		}
		zone = zone[end:]
	}
	east, ok := zoneMinutes(zone)
	utc := hour*60 + minute - east // from the start of the local day
	return ok && (second < 60 || utc == 24*60-1 || utc == -1)
}

// zoneMinutes reads the offset at the end of a date-time.
func zoneMinutes(zone []byte) (east int, ok bool) {
	if len(zone) == 1 {
		return 0, zone[0]|0x20 == 'z'
	}
	if len(zone) != len("+00:00") || zone[0] != '+' && zone[0] != '-' || zone[3] != ':' {
		return 0, false
	}
	hours, minutes := twoDigits(zone[1:]), twoDigits(zone[4:])
	if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	east = hours*60 + minutes
	if zone[0] == '-' {
		east = -east
	}
	return east, true
}

// twoDigits returns the number that two digits write. It is far below zero when one of them is no
// digit, also after a few additions and multiplications.
func twoDigits(text []byte) int {
	const none = -100000
	tens, ones := int(text[0])-'0', int(text[1])-'0'
	if tens < 0 || tens > 9 || ones < 0 || ones > 9 {
		return none
	}
	return tens*10 + ones
}

// daysIn returns the length of a month of the proleptic Gregorian calendar, and 0 for a month that
// does not exist.
func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 1, 3, 5, 7, 8, 10, 12:
		return 31
	}
	return 0
}
