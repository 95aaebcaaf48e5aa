package contract

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// digestNumbers are the canonical numbers that the record digest has for what is in no event.
var digestNumbers = []byte{fieldAppendedBy, fieldOriginalPersistedAt, fieldOriginalSource, fieldAppendedByTokenID}

// checkFields returns all faults of a table of fields, each with what to do about it. With such a
// table, a form would lose a field or take one for another.
func checkFields(rows []Field) error {
	c := fieldChecker{
		names: map[string]string{}, places: map[uintptr]string{}, absent: map[Absent]string{},
		bodies: map[byte]string{}, canonical: map[byte]string{},
	}
	for _, number := range digestNumbers {
		c.canonical[number] = "the record digest"
		c.nextCanonical = max(c.nextCanonical, number+1)
	}
	for i := range rows {
		if n := rows[i].Body; n != elsewhere {
			c.nextBody = max(c.nextBody, n+1)
		}
		if n := rows[i].canonical; n != elsewhere {
			c.nextCanonical = max(c.nextCanonical, n+1)
		}
	}
	for i := range rows {
		c.row(&rows[i])
	}
	return errors.Join(c.faults...)
}

// fieldChecker has what the rows before have.
type fieldChecker struct {
	names             map[string]string
	places            map[uintptr]string
	absent            map[Absent]string
	bodies, canonical map[byte]string

	nextBody, nextCanonical byte // the next numbers that are free
	faults                  []error
}

func (c *fieldChecker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

func (c *fieldChecker) row(f *Field) {
	if f.Name == "" || f.Column == "" {
		c.fault("a row has no name: give it that of its member in JSON")
		return
	}
	for _, name := range slices.Compact([]string{f.Name, f.Column}) {
		if other := c.names[name]; other != "" {
			c.fault("%s and %s are both called %s: remove one of the rows, or name it otherwise", other, f.Name, name)
			break
		}
		c.names[name] = f.Name
	}
	placed := c.place(f)
	c.number(f.Name, "in a stored body (Body, as in record.v1.Body)", f.Body, BodyNumbers, c.nextBody, c.bodies)
	c.number(f.Name, "among the canonical bytes (canonical)", f.canonical, elsewhere, c.nextCanonical, c.canonical)
	if placed && f.canonical != elsewhere {
		c.inCanonical(f)
	}
	if f.Absent != 0 {
		if other := c.absent[f.Absent]; other != "" {
			c.fault("%s and %s have the same bit of Absent: give %s a bit of its own", other, f.Name, f.Name)
		}
		if f.Kind != KindText {
			c.fault("%s has a bit of Absent and is no text: only texts can be inherited", f.Name)
		}
		c.absent[f.Absent] = f.Name
	}
}

// place checks where a field is, and reports whether it has a place of its own.
func (c *fieldChecker) place(f *Field) bool {
	switch {
	case f.at == nil:
		c.fault("%s has no place in Recorded (at): return the address of one of its fields", f.Name)
	case f.Kind == 0:
		c.fault("%s is a %T, which no kind has: use the type of a kind, or add a kind, with its case in each form", f.Name, f.at(new(Recorded)))
	case f.offset >= unsafe.Sizeof(Recorded{}):
		c.fault("%s is not in the Recorded that its row is given: return the address of one of its fields", f.Name)
	case c.places[f.offset] != "":
		c.fault("%s and %s are the same field of Recorded: remove one of the rows, or let it return the address of its own", c.places[f.offset], f.Name)
	default:
		c.places[f.offset] = f.Name
		return true
	}
	return false
}

// number checks a number that is stored.
func (c *fieldChecker) number(name, where string, number, below, next byte, taken map[byte]string) {
	free := func() string {
		if next >= below {
			return fmt.Sprintf("%d, and make room for it (BodyNumbers)", next)
		}
		return fmt.Sprintf("%d, the next that is free", next)
	}
	switch other := taken[number]; {
	case number == elsewhere:
	case number == 0:
		c.fault("%s has no number %s: give it %s, or elsewhere if the form has it in another way", name, where, free())
	case other != "":
		c.fault("%s and %s have the number %d %s: give the newer one %s", other, name, number, where, free())
	case number >= below:
		c.fault("%s has the number %d %s, where there is room for those below %d: make more (BodyNumbers)", name, number, where, below)
	default:
		taken[number] = name
	}
}

// inCanonical checks that a field can be among the canonical bytes.
func (c *fieldChecker) inCanonical(f *Field) {
	switch f.Kind {
	case KindText, KindCount, KindTime, KindEventID, KindLine, KindObject:
		if f.offset >= unsafe.Sizeof(Event{}) {
			c.fault("%s has a canonical number and is no field of an Event: say elsewhere", f.Name)
		}
	default:
		c.fault("%s has a canonical number and is of a kind that has no canonical bytes: say elsewhere, or add the kind to AppendCanonical", f.Name)
	}
}
