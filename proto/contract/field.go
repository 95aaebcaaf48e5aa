package contract

import (
	"slices"
	"strings"
)

// field is a field of the envelope in an event's JSON text, an index of jsonFields.
type field uint8

const noField field = 0

// jsonField is a member of an event's JSON text. A member that holds an object is followed by its
// form in base64.
type jsonField struct {
	name   string // in lowerCamel case
	column string // in snake case
	// written is where a text, a number or a time is in an EventWrite.
	written MessageField
}

var jsonFields = func() []jsonField {
	all := make([]jsonField, 1)
	for _, f := range recordedFields {
		if i := slices.IndexFunc(writtenFields, func(w MessageField) bool { return w.Name == f.Name }); i >= 0 && f.Kind != KindObject {
			all = append(all, jsonField{f.Name, f.Column, writtenFields[i]})
		}
	}
	for _, name := range []string{"payload", "payloadJson", "extensions", "extensionsJson"} {
		all = append(all, jsonField{name: name, column: snakeCase(name)})
	}
	return all
}()

// The members that hold an object.
var (
	payloadField        = fieldOf([]byte("payload"))
	payloadJSONField    = payloadField + 1
	extensionsField     = fieldOf([]byte("extensions"))
	extensionsJSONField = extensionsField + 1
)

// fieldsByName has each member in both cases, at the place of its name or in the next ones that are
// free. With a map in its place, reading an event took a fifth more time.
var fieldsByName = func() (all [256]struct {
	name  string
	field field
}) {
	for i := range jsonFields[1:] {
		f := &jsonFields[i+1]
		for _, name := range []string{f.name, f.column} {
			at := placeOf(name)
			for all[at].name != "" && all[at].name != name {
				at++
			}
			all[at].name, all[at].field = name, field(i+1)
		}
	}
	return all
}()

// placeOf returns a hash of a name that is not empty.
func placeOf[T string | []byte](name T) byte {
	n := len(name)
	return byte(n)*29 + name[0]*7 + name[n/2]*3 + name[n-1]*11
}

// fieldNames are the names of all members in lowerCamel case.
var fieldNames = func() (names []string) {
	for i := range jsonFields[1:] {
		names = append(names, jsonFields[i+1].name)
	}
	return names
}()

// String returns the name in lowerCamel case.
func (f field) String() string { return jsonFields[f].name }

// fieldOf returns the field that a JSON member stands for, in lowerCamel or snake case (contract
// section 2).
func fieldOf(name []byte) field {
	if len(name) == 0 {
		return noField
	}
	for at := placeOf(name); fieldsByName[at].name != ""; at++ {
		if fieldsByName[at].name == string(name) {
			return fieldsByName[at].field
		}
	}
	return noField
}

// recordField returns the lowerCamel name of what a record has beside its event, empty for all
// else.
func recordField(name string) string { return besideNames[name] }

// besideNames has these names in both cases: those of the fields that no EventWrite has.
var besideNames = func() map[string]string {
	all := map[string]string{}
	for _, f := range recordedFields {
		name, _, _ := strings.Cut(f.Name, ".") // one object
		if fieldOf([]byte(name)) == noField {
			all[name], all[snakeCase(name)] = name, name
		}
	}
	return all
}()

// isServerAssigned reports whether a member of a record is one that its producer never writes.
func isServerAssigned(name string) bool {
	switch name {
	case "runSeq", "run_seq", "persistedAt", "persisted_at":
		return true
	}
	return false
}
