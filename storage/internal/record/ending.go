package record

import (
	"encoding/binary"
	"fmt"
)

// endingSize is the index of an event among the headers (4).
const endingSize = 4

// Endings are the indexes of a request's events that end its run (PRJ-3).
type Endings []byte

// Any tells whether a test holds for one of the events.
func (e Endings) Any(test func(index int) bool) bool {
	for ; len(e) > 0; e = e[endingSize:] {
		if test(int(binary.BigEndian.Uint32(e))) {
			return true
		}
	}
	return false
}

func parseEndings(b []byte) (Endings, error) {
	if len(b)%endingSize != 0 {
		return nil, fmt.Errorf("%w: %d bytes of endings", errWire, len(b))
	}
	return b, nil
}
