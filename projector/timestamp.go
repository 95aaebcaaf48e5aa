package projector

import "time"

// time returns an RFC 3339 time, in UTC and cut to nanoseconds. A date that is none, a leap second, a
// year outside of 1 to 9999 in UTC, and the zero time of Go, which stands for an absent one, are no
// times.
//
// It is read here and not by package time, whose notion of strict has changed before and still takes a
// comma for the point: see value.
func (v value) time() (t time.Time, ok bool) {
	if !v.isString() {
		return t, false
	}
	text := v[1 : len(v)-1]
	if len(text) < len("2006-01-02T15:04:05Z") || !separated(text) {
		return t, false
	}
	d := digits{text: text}
	year, month, day := d.number(0, 4), d.number(5, 2), d.number(8, 2)
	hour, minute, second := d.number(11, 2), d.number(14, 2), d.number(17, 2)
	nanos, rest := fraction(text[19:])
	east, zoned := offset(rest)
	if d.bad || hour > 23 || minute > 59 || second > 59 || !zoned {
		return t, false
	}
	t = time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	if t.Day() != day || int(t.Month()) != month {
		return time.Time{}, false // 30 February has become 2 March
	}
	t = t.Add(-east)
	return t, !t.IsZero() && t.Year() >= 1 && t.Year() <= 9999
}

func (v value) timeOr(fallback time.Time) time.Time {
	if t, ok := v.time(); ok {
		return t
	}
	return fallback
}

// separated tells whether the separators up to the seconds stand in their places.
func separated(b []byte) bool {
	return b[4] == '-' && b[7] == '-' && (b[10] == 'T' || b[10] == 't') && b[13] == ':' && b[16] == ':'
}

// digits reads numbers of fixed width, and remembers when one was none.
type digits struct {
	text []byte
	bad  bool
}

func (d *digits) number(at, width int) (n int) {
	for _, c := range d.text[at : at+width] {
		if c < '0' || c > '9' {
			d.bad = true
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// fraction reads the fraction of a second, if there is one, and returns what follows; nothing follows
// a point without digits.
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

// offset reads "Z" or ±hh:mm, up to the end.
func offset(b []byte) (east time.Duration, ok bool) {
	if len(b) == 1 {
		return 0, b[0] == 'Z' || b[0] == 'z'
	}
	if len(b) != len("+00:00") || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return 0, false
	}
	d := digits{text: b}
	hours, minutes := d.number(1, 2), d.number(4, 2)
	east = time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if b[0] == '-' {
		east = -east
	}
	return east, !d.bad && hours <= 23 && minutes <= 59
}
