package contracttest

import (
	"bytes"

	"runlog/proto/contract"
)

// Changes returns a change of each field of a recorded event, by the field's name.
func Changes() map[string]func(*contract.Recorded) {
	all := map[string]func(*contract.Recorded){}
	for _, f := range contract.Fields() {
		all[f.Name] = func(r *contract.Recorded) { change(&f, r) }
	}
	return all
}

func change(f *contract.Field, r *contract.Recorded) {
	switch f.Kind {
	case contract.KindText:
		*f.Text(r) += "x"
	case contract.KindCount:
		*f.Count(r)++
	case contract.KindNumber:
		*f.Number(r)++
	case contract.KindTime:
		*f.Time(r)++
	case contract.KindEventID:
		f.EventID(r)[3] ^= 1
	case contract.KindLine:
		*f.Line(r) ^= 1
	case contract.KindSalt:
		f.Salt(r)[5] ^= 1
	case contract.KindDigest:
		f.Digest(r)[9] ^= 1
	case contract.KindNames:
		*f.Names(r) ^= contract.AbsentTenant
	case contract.KindObject:
		if object := f.Object(r); len(*object) == 0 {
			*object = []byte(`{}`)
		} else {
			*object = append(bytes.Clone(*object), ' ')
		}
	default:
		panic("contracttest: " + f.Name + " is of a kind that no test changes: add a case")
	}
}
