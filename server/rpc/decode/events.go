package decode

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// errRefused means that a body was refused. The explanation runs over the whole body.
var errRefused = errors.New("an event is not well formed")

// readEvents decodes a body whose message has events. done is false if it has none, or with an
// error if the body is refused. The events are read by the contract; the decoder reads the rest.
func readEvents(body []byte, to proto.Message) (done bool, err error) {
	// A payload lies in its event, in an array, in a request.
	levels := contract.MaxDepth + 3
	switch m := to.(type) {
	case *runlogv1.AppendEventsRequest:
		return readChecked(body, levels, func(object []byte) error { return readRequest(object, m, &m.Events) })
	case *runlogv1.CreateRunRequest:
		return readChecked(body, levels, func(object []byte) error { return readRequest(object, m, &m.Events) })
	case *runlogv1.ReleaseLeaseRequest:
		return readChecked(body, levels, func(object []byte) error { return readRequest(object, m, &m.Events) })
	case *runlogv1.BatchAppendRequest:
		return readChecked(body, levels+2, func(object []byte) error { return readBatch(object, m) })
	}
	return false, nil
}

// readChecked calls read with a body that is one JSON object of at most that many levels.
func readChecked(body []byte, levels int, read func(object []byte) error) (done bool, err error) {
	if _, fault := jsontext.CheckObject(body, levels); fault != 0 {
		return false, errRefused
	}
	err = read(body)
	return err == nil, err
}

// readRequest decodes a request with events into to, of which events is a field.
func readRequest(object []byte, to proto.Message, events *[]*runlogv1.EventWrite) error {
	array, err := readRest(object, "events", to)
	if err != nil {
		return err
	}
	return eachElement(array, func(element []byte) error {
		w := &runlogv1.EventWrite{}
		*events = append(*events, w)
		if bad := contract.ReadEvent(w, element); len(bad) > 0 {
			return errRefused
		}
		return nil
	})
}

func readBatch(object []byte, to *runlogv1.BatchAppendRequest) error {
	array, err := readRest(object, "requests", to)
	if err != nil {
		return err
	}
	return eachElement(array, func(element []byte) error {
		r := &runlogv1.AppendEventsRequest{}
		to.Requests = append(to.Requests, r)
		return readRequest(element, r, &r.Events)
	})
}

// readRest decodes an object without one of its members, and returns the value of that member; nil:
// none, or null.
func readRest(object []byte, without string, to proto.Message) (value []byte, err error) {
	rest := []byte{'{'}
	seen := false
	c := jsontext.Members(object)
	for quoted, v, ok := c.Quoted(); ok; quoted, v, ok = c.Quoted() {
		if jsontext.Text(quoted) == without {
			if seen {
				return nil, errRefused
			}
			if seen = true; !isNull(v) {
				value = v
			}
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(rest, quoted...), ':'), v...)
	}
	if len(rest) > 1 {
		return value, unmarshal(append(rest, '}'), to)
	}
	proto.Reset(to)
	return value, nil
}

// eachElement calls take for each element of an array, which must be an object.
func eachElement(array []byte, take func(element []byte) error) error {
	if array != nil && array[0] != '[' {
		return errRefused
	}
	e := jsontext.Elements(array)
	for element, ok := e.Element(); ok; element, ok = e.Element() {
		if element[0] != '{' {
			return errRefused
		}
		if err := take(element); err != nil {
			return err
		}
	}
	return nil
}
