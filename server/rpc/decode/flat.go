package decode

import (
	"bytes"
	"errors"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// flatten converts the flat 1.1 events of a body of well-formed JSON into envelopes, and copies the
// rest byte by byte. If one of them cannot be converted, the error lists the faults of all parts of
// the body.
func flatten(body []byte, md protoreflect.MessageDescriptor) ([]byte, *contract.Error) {
	// Only a body that says so somewhere can hold a flat event.
	if !bytes.Contains(body, []byte(`"1.1"`)) {
		return body, nil
	}
	f := flattener{}
	switch trimmed := bytes.TrimSpace(body); md.FullName() {
	case "runlog.v1.AppendEventsRequest", "runlog.v1.CreateRunRequest":
		f.events(trimmed, "")
	case "runlog.v1.BatchAppendRequest":
		f.array(trimmed, "requests", "", f.events)
	default:
		return body, nil
	}
	if len(f.bad) == 0 {
		return f.out, nil
	}
	if e := explainJSON(f.out, md); e != nil {
		f.bad = append(f.bad, e.Violations...)
	}
	return nil, contract.NewError(f.bad)
}

// flattener copies a body to out.
type flattener struct {
	faults
	out []byte
}

// events copies a request and the events in it.
func (f *flattener) events(request []byte, path string) {
	f.array(request, "events", path, f.event)
}

// array copies an object. In the array of the member called name it copies each element with
// copyElement.
func (f *flattener) array(object []byte, name, path string, copyElement func(element []byte, path string)) {
	if object[0] != '{' {
		f.out = append(f.out, object...)
		return
	}
	open := byte('{')
	c := jsontext.Members(object)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		f.out = append(append(append(f.out, open), quoted...), ':')
		open = ','
		if value[0] != '[' || jsontext.Text(quoted) != name {
			f.out = append(f.out, value...)
			continue
		}
		f.out = append(f.out, '[')
		e := jsontext.Elements(value)
		element, more := e.Element()
		for i := 0; more; i++ {
			if i > 0 {
				f.out = append(f.out, ',')
			}
			copyElement(element, join(path, name)+"["+strconv.Itoa(i)+"]")
			element, more = e.Element()
		}
		f.out = append(f.out, ']')
	}
	if open == '{' {
		f.out = append(f.out, open)
	}
	f.out = append(f.out, '}')
}

// event copies an event as an envelope. It copies a faulty 2.x event unchanged: the decoder refuses
// it too, with all other faults.
func (f *flattener) event(event []byte, path string) {
	out, err := contract.NormalizeFlat(event)
	var own *contract.Error
	switch {
	case err == nil:
		f.out = append(f.out, out...)
	case !errors.As(err, &own) || event[0] != '{' || !isFlat(event):
		f.out = append(f.out, event...)
	default:
		for _, v := range own.Violations {
			v.Field = join(path, v.Field)
			if !f.full() {
				f.bad = append(f.bad, v)
			}
		}
		f.out = append(f.out, "{}"...)
	}
}

// isFlat reports whether an event says that it is of line 1.1, in whose flat form any member is
// legal.
func isFlat(event []byte) bool {
	c := jsontext.Members(event)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		name := jsontext.Text(quoted)
		if (name == "contractVersion" || name == "contract_version") && jsontext.Text(value) == "1.1" {
			return true
		}
	}
	return false
}
