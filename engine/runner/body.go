package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"runlog/engine/plan"
	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// maxFaults bounds how many faults of a body an answer lists.
const maxFaults = 100

// faultsError lists everything that is wrong with a body.
type faultsError struct{ faults []plan.Fault }

func (e *faultsError) Error() string {
	if len(e.faults) == 1 {
		return "the body has a fault: " + e.faults[0].String()
	}
	return fmt.Sprintf("the body has %d faults, such as: %s", len(e.faults), e.faults[0])
}

func faulty(path, format string, args ...any) error {
	return &faultsError{[]plan.Fault{{Path: path, Message: fmt.Sprintf(format, args...)}}}
}

// decodeStrictly decodes one JSON object, or returns all its faults.
func decodeStrictly(body []byte, into any) error {
	faults, err := decode(body, into)
	if err == nil && len(faults) > 0 {
		err = &faultsError{faults}
	}
	return err
}

// decode decodes one JSON object into a struct. faults are what a caller may report beside its own
// ones; after an error there is nothing to look at. A member that is not known is a fault: a
// misspelt one would be ignored. So is one that is there twice: of two outcomes, others may see the
// other one.
func decode(body []byte, into any) (faults []plan.Fault, err error) {
	if pos, fault := jsontext.CheckObject(body, jsontext.MaxDepth); fault != 0 {
		return nil, faulty("", "is no JSON object: %s at byte %d", fault, pos)
	}
	s := shape{}
	s.check("", body[jsontext.SkipSpace(body, 0):], reflect.TypeOf(into).Elem())
	if err := json.Unmarshal(body, into); err == nil {
		return s.faults, nil
	} else if len(s.faults) == 0 {
		path := ""
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			path = "/" + strings.ReplaceAll(wrong.Field, ".", "/")
		}
		return nil, faulty(path, "cannot be read: %v", err)
	}
	return nil, &faultsError{s.faults}
}

// shape compares a JSON value with a Go type.
type shape struct{ faults []plan.Fault }

func (s *shape) add(path, format string, args ...any) {
	if len(s.faults) < maxFaults {
		s.faults = append(s.faults, plan.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

var rawMessage = reflect.TypeFor[json.RawMessage]()

// check reports what a type has no place for. null is the absence of a value.
func (s *shape) check(path string, value []byte, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == rawMessage || value[0] == 'n' {
		return
	}
	expect := func(first byte, what string) bool {
		if value[0] != first {
			s.add(path, "is %s: %s is expected", jsontext.Show(value), what)
		}
		return value[0] == first
	}
	switch t.Kind() {
	case reflect.Struct:
		if expect('{', "an object") {
			s.members(path, value, t)
		}
	case reflect.Slice:
		if !expect('[', "an array") {
			return
		}
		list := jsontext.Elements(value)
		for i := 0; ; i++ {
			element, ok := list.Element()
			if !ok {
				return
			}
			s.check(fmt.Sprintf("%s/%d", path, i), element, t.Elem())
		}
	case reflect.String:
		expect('"', "a string")
	case reflect.Int64:
		if _, err := strconv.ParseInt(string(value), 10, 64); err != nil {
			s.add(path, "is %s: a whole number of 64 bits is expected, without a fraction or an exponent", jsontext.Show(value))
		}
	}
}

// members checks those of an object. encoding/json ignores the case of names, and takes the last
// one of several: both are faults here.
func (s *shape) members(path string, object []byte, t reflect.Type) {
	known := map[string]reflect.Type{}
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name], names = f.Type, append(names, name)
	}
	seen := map[string]bool{}
	for c := jsontext.Members(object); ; {
		raw, value, ok := c.Member()
		if !ok {
			return
		}
		name := string(raw)
		of, ok := known[name]
		switch near := contract.Nearest(name, names); {
		case !ok && near != "":
			s.add(path, "has the unknown member %.100q: write %s", name, near)
		case !ok:
			s.add(path, "has the unknown member %.100q: remove it", name)
		case seen[name]:
			s.add(path+"/"+name, "appears twice: remove one of them")
		default:
			seen[name] = true
			s.check(path+"/"+name, value, of)
		}
	}
}
