package record

import (
	"cmp"
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
)

// bodyNames are the columns of the fields that a body has under other names.
var bodyNames = map[protoreflect.Name]string{"type_name": "event_type", "contract": "contract_version", "absent": "inherited"}

// bodyKinds are the types that a body has for the kinds of fields.
var bodyKinds = map[contract.Kind]protoreflect.Kind{
	contract.KindText: protoreflect.StringKind, contract.KindCount: protoreflect.Uint32Kind, contract.KindNumber: protoreflect.Uint64Kind,
	contract.KindTime: protoreflect.Sfixed64Kind, contract.KindEventID: protoreflect.BytesKind, contract.KindLine: protoreflect.Uint32Kind,
	contract.KindNames: protoreflect.Uint32Kind, contract.KindObject: protoreflect.BytesKind, contract.KindSalt: protoreflect.BytesKind,
}

// checkBody returns all differences between the rows of a stored body and the message that
// describes it, each with what to do about it. A node with such a table would read stored events
// otherwise than they were written.
func checkBody(rows []contract.Field, body protoreflect.MessageDescriptor) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	found := map[protoreflect.FieldNumber]bool{bodyTypeCode: true, bodyPlan: true}
	for i := range rows {
		row, number := &rows[i], protoreflect.FieldNumber(rows[i].Body)
		f := body.Fields().ByNumber(number)
		switch {
		case found[number]:
			fault("%s has the number %d, which is that of another field: give it one that is free", row.Name, number)
		case f == nil:
			fault("%s has the number %d, and the message has no such field: add it to record.proto and run make generate", row.Name, number)
		case cmp.Or(bodyNames[f.Name()], string(f.Name())) != row.Column:
			fault("%s has the number %d, which is that of %s: what is stored has that field there, so give %s a number that is free", row.Name, number, f.Name(), row.Name)
		case f.Kind() != bodyKinds[row.Kind] || f.IsList():
			fault("%s is of kind %d, and %v in the message: keep the type that stored bodies have, or give the new type a new field", row.Name, row.Kind, f.Kind())
		}
		found[number] = true
	}
	for i := range body.Fields().Len() {
		if f := body.Fields().Get(i); !found[f.Number()] {
			fault("%s of the message has no row with the number %d: stored bodies have it, so keep its row", f.Name(), f.Number())
		}
	}
	return errors.Join(faults...)
}
