package contract

import (
	"cmp"
	"slices"
	"unsafe"
)

// canonicalField is a field of the canonical bytes.
type canonicalField struct {
	number   byte
	kind     Kind
	optional bool
	absent   Absent
	ofTry    bool
	offset   uintptr // in Event
}

// in returns where the field is in an event.
func (f *canonicalField) in(e *Event) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(e), f.offset) }

var (
	// canonicalFields are in the order of the canonical bytes: by number, the contract line last.
	canonicalFields = func() (all []canonicalField) {
		for _, f := range recordedFields {
			if f.canonical == 0 {
				continue
			}
			all = append(all, canonicalField{f.canonical, f.Kind, f.Optional, f.Absent, f.ofTry, f.offset - unsafe.Offsetof(Recorded{}.Event)})
		}
		slices.SortFunc(all, func(a, b canonicalField) int { return cmp.Compare(a.number, b.number) })
		line := slices.IndexFunc(all, func(f canonicalField) bool { return f.kind == KindLine })
		return append(slices.Delete(slices.Clone(all), line, line+1), all[line])
	}()
	// contentFields are those of them that count when two events are compared.
	contentFields = slices.DeleteFunc(slices.Clone(canonicalFields), func(f canonicalField) bool { return f.ofTry })
)
