package plan

import (
	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// decoder reads JSON values and gathers what is wrong with them.
type decoder struct {
	faults
	// open allows members that a table does not have.
	open bool
}

// member is one of those that an object may have.
type member struct {
	name     string
	required bool
	read     func(p *place, value []byte)
}

// object reads the members of an object.
func (d *decoder) object(p *place, value []byte, members []member) bool {
	if value[0] != '{' {
		d.add(p, "is %s: an object is expected", show(value))
		return false
	}
	var seen uint64
	for c := jsontext.Members(value); ; {
		name, v, ok := c.Member()
		if !ok {
			break
		}
		at := p.member(string(name))
		i := find(members, string(name))
		switch {
		case i < 0 && d.open:
		case i < 0:
			d.add(at, "is unknown%s", suggestion(string(name), members))
		case seen&(1<<i) != 0:
			d.add(at, "appears twice: remove one of them")
		default:
			seen |= 1 << i
			members[i].read(at, v)
		}
	}
	for i, m := range members {
		if m.required && seen&(1<<i) == 0 {
			d.add(p.member(m.name), "is required")
		}
	}
	return true
}

func find(members []member, name string) int {
	for i := range members {
		if members[i].name == name {
			return i
		}
	}
	return -1
}

func suggestion(name string, members []member) string {
	names := make([]string, len(members))
	for i := range members {
		names[i] = members[i].name
	}
	if near := contract.Nearest(name, names); near != "" {
		return ": write " + near
	}
	return ": remove it"
}

// array calls read for each element of an array of at least least and at most most elements.
func (d *decoder) array(p *place, value []byte, least, most int, read func(p *place, value []byte)) {
	if value[0] != '[' {
		d.add(p, "is %s: an array is expected", show(value))
		return
	}
	c, n := jsontext.Elements(value), 0
	for ; ; n++ {
		v, ok := c.Element()
		if !ok {
			break
		}
		if n < most {
			read(p.element(n), v)
		}
	}
	switch {
	case n < least:
		d.add(p, "has %d elements: at least %d are needed, or leave it out", n, least)
	case n > most:
		d.add(p, "has %d elements: at most %d are allowed", n, most)
	}
}

// text reads a string that a rule finds no fault in. A nil rule takes any.
func (d *decoder) text(to *string, rule func(string) string) func(*place, []byte) {
	return func(p *place, value []byte) {
		if value[0] != '"' {
			d.add(p, "is %s: a string is expected", show(value))
			return
		}
		*to = jsontext.Text(value)
		if rule == nil {
			return
		}
		if fault := rule(jsontext.Unquote(value)); fault != "" {
			d.add(p, "%s", fault)
		}
	}
}

// texts reads an array of different strings.
func (d *decoder) texts(to *[]string, most int, rule func(string) string) func(*place, []byte) {
	return func(p *place, value []byte) {
		seen := map[string]bool{}
		*to = []string{}
		d.array(p, value, 0, most, func(p *place, value []byte) {
			var s string
			d.text(&s, rule)(p, value)
			if value[0] == '"' && seen[s] {
				d.add(p, "%s is listed twice", quote(s))
			}
			seen[s] = true
			*to = append(*to, s)
		})
	}
}

// integer reads a whole number between two others.
func (d *decoder) integer(to *int64, least, most int64) func(*place, []byte) {
	return func(p *place, value []byte) {
		n, ok := wholeNumber(value)
		switch {
		case !ok:
			d.add(p, "is %s: a whole number is expected", show(value))
		case n < least || n > most:
			d.add(p, "is %s: a whole number between %d and %d is expected", show(value), least, most)
		default:
			*to = n
		}
	}
}

// wholeNumber returns the value of a number without a fraction, as a schema counts it: 3.0 has
// none. One that is too large for an int64 is the largest.
func wholeNumber(value []byte) (int64, bool) {
	if value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return 0, false
	}
	negative, whole, fraction, exponent := jsontext.SplitNumber(value)
	for _, c := range fraction {
		if c != '0' {
			return 0, false
		}
	}
	if len(exponent) > 0 {
		return 0, false
	}
	var n int64
	for _, c := range whole {
		if n > 1<<58 {
			n = 1 << 58 // more than any limit
			continue
		}
		n = 10*n + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}
