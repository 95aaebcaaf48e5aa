package record

import (
	"encoding/binary"
	"fmt"

	"runlog/proto/contract"
)

// changeSize is the index of an event among the headers (4), and the code of its type (1).
const changeSize = 5

// Changes are those events of a request that may change the status of its run, in their order
// (PRJ-17).
type Changes []byte

// After returns the statuses of a run after the events for which a test holds.
func (c Changes) After(set contract.Statuses, test func(index int) bool) contract.Statuses {
	for ; len(c) > 0; c = c[changeSize:] {
		if eventType, known := contract.TypeName(uint32(c[4])); known && test(int(binary.BigEndian.Uint32(c))) {
			set = set.After(eventType)
		}
	}
	return set
}

// Before divides the changes into those of the events before an index, and the others.
func (c Changes) Before(index int) (before, others Changes) {
	n := 0
	for n < len(c) && int(binary.BigEndian.Uint32(c[n:])) < index {
		n += changeSize
	}
	return c[:n], c[n:]
}

// TypeOf returns the type of an event, if its change is the first one; empty: it is not.
func (c Changes) TypeOf(index int) string {
	if len(c) == 0 || int(binary.BigEndian.Uint32(c)) != index {
		return ""
	}
	eventType, _ := contract.TypeName(uint32(c[4]))
	return eventType
}

func parseChanges(b []byte) (Changes, error) {
	if len(b)%changeSize != 0 {
		return nil, fmt.Errorf("%w: %d bytes of changes", errWire, len(b))
	}
	return b, nil
}
