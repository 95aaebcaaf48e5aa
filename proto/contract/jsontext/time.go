package jsontext

import "time"

// Time reads a date-time of RFC 3339, section 5.6, in UTC and cut to nanoseconds. formed is false
// for every other text. ok is false for a date-time that a snapshot cannot show: a leap second, a
// year outside of 1 to 9999 in UTC, and the zero time of Go, which stands for an absent one.
//
// A second of 60 is legal only at the end of a UTC day. Time does not know which days had a leap
// second.
func Time(text []byte) (t time.Time, formed, ok bool) {
	if len(text) < len("2006-01-02T15:04:05Z") || !separated(text) {
		return t, false, false
	}
	d := digits{text: text}
	year, month, day := d.two(0)*100+d.two(2), d.two(5), d.two(8)
	hour, minute, second := d.two(11), d.two(14), d.two(17)
	nanos, rest := fraction(text[19:])
	east, zoned := offset(rest)
	if d.bad || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) ||
		hour > 23 || minute > 59 || second > 60 || !zoned {
		return t, false, false
	}
	seconds := int64(daysBefore(year, month)+day-1)*86400 + int64(hour*3600+minute*60+second) - east
	if second == 60 {
		return t, seconds%86400 == 0, false
	}
	if seconds < firstSecond || seconds > lastSecond || seconds == firstSecond && nanos == 0 {
		return t, true, false
	}
	return time.Unix(seconds, int64(nanos)).UTC(), true, true
}

// The seconds with a year from 1 to 9999, since 1970.
const firstSecond, lastSecond = -62135596800, 253402300799

func leap(year int) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysIn(year, month int) int {
	switch {
	case month == 2 && leap(year):
		return 29
	case month == 2:
		return 28
	default:
		return 30 + (month+month/8)&1
	}
}

// daysBefore counts the days from 1970-01-01 to the first of a month of the years 0 to 9999. A year
// begins in March here, so that leap days end it:
// https://howardhinnant.github.io/date_algorithms.html#days_from_civil.
func daysBefore(year, month int) int {
	year, month = year+400, month-3 // no negative division
	if month < 0 {
		year, month = year-1, month+12
	}
	return year*365 + year/4 - year/100 + year/400 + (153*month+2)/5 - days1970
}

// days1970 is the count of daysBefore up to 1970-01-01.
const days1970 = 2369*365 + 2369/4 - 2369/100 + 2369/400 + (153*10+2)/5

// separated reports whether the separators up to the seconds are in their places.
func separated(b []byte) bool {
	return b[4] == '-' && b[7] == '-' && (b[10] == 'T' || b[10] == 't') && b[13] == ':' && b[16] == ':'
}

// digits reads numbers of two digits, and remembers when one was none.
type digits struct {
	text []byte
	bad  bool
}

func (d *digits) two(at int) int {
	tens, ones := d.text[at]-'0', d.text[at+1]-'0'
	d.bad = d.bad || tens > 9 || ones > 9
	return int(tens)*10 + int(ones)
}

// fraction reads the fraction of a second, if there is one, and returns what follows; nothing
// follows a point without digits.
func fraction(b []byte) (nanos int, rest []byte) {
	if b[0] != '.' {
		return 0, b
	}
	i := 1
	for unit := int(time.Second) / 10; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		nanos += int(b[i]-'0') * unit
		unit /= 10
	}
	if i == 1 {
		return 0, nil
	}
	return nanos, b[i:]
}

// offset reads "Z" or ±hh:mm, up to the end, as seconds.
func offset(b []byte) (east int64, ok bool) {
	if len(b) == 1 {
		return 0, b[0] == 'Z' || b[0] == 'z'
	}
	if len(b) != len("+00:00") || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return 0, false
	}
	d := digits{text: b}
	hours, minutes := d.two(1), d.two(4)
	east = int64(hours*3600 + minutes*60)
	if b[0] == '-' {
		east = -east
	}
	return east, !d.bad && hours <= 23 && minutes <= 59
}
