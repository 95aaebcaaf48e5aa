package decode

import (
	"bytes"

	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// fewMarks is the number of commas and opening brackets below which a body is not counted. Whatever
// they represent takes 10 MB at most.
const fewMarks = 32_000

const releaseLease = "runlog.v1.ReleaseLeaseRequest"

// checkJSON counts the elements of a body before it is decoded. The body need not be JSON; the
// count is then that of the part that the decoder reads.
func checkJSON(body []byte, input protoreflect.FullName) *contract.Error {
	events := 2 // how deep they lie: in an array in an object
	switch input {
	case "runlog.v1.BatchAppendRequest":
		events = 4
	case "runlog.v1.AppendEventsRequest", "runlog.v1.CreateRunRequest", releaseLease:
	default:
		return nil
	}
	if len(body) <= fewMarks || marks(body) <= fewMarks {
		return nil
	}
	c := countJSON(body)
	switch {
	case events == 4 && (c.elements[2] > MaxBatchRequests || c.elements[4] > MaxBatchEvents):
		return CheckBatch(c.elements[2], c.elements[4])
	case input == releaseLease:
		return CheckStart(c.elements[2])
	case events == 2 && c.elements[2] > contract.MaxEvents:
		return contract.WrongCount(c.elements[2])
	default:
		return nil
	}
}

// marks returns an upper bound of the number of values in a JSON text, at the speed of memory.
func marks(body []byte) int {
	return 1 + bytes.Count(body, []byte{','}) + bytes.Count(body, []byte{'{'}) + bytes.Count(body, []byte{'['})
}

// jsonCount is the number of elements in a body.
type jsonCount struct {
	// elements counts array elements by the number of objects and arrays around them.
	elements [5]int
}

// countJSON counts without a check of the syntax.
func countJSON(body []byte) (c jsonCount) {
	var arrays uint64 // bit d is set while the container at depth d is an array
	depth := 0
	count := func() {
		if depth >= 0 && depth < len(c.elements) && arrays>>depth&1 == 1 {
			c.elements[depth]++
		}
	}
	for i := 0; i < len(body); i++ {
		switch b := body[i]; b {
		case '"':
			end := jsontext.SkipString(body, i)
			if end < 0 {
				return c
			}
			i = end - 1
		case ',':
			count()
		case '{', '[':
			depth++
			if depth > 0 && depth < 64 {
				arrays &^= 1 << depth
				if b == '[' {
					arrays |= 1 << depth
				}
			}
			if next := jsontext.SkipSpace(body, i+1); next < len(body) && body[next] != '}' && body[next] != ']' {
				count()
			}
		case '}', ']':
			depth--
		}
	}
	return c
}
