package decode

import (
	"bytes"

	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// fewMarks is how many commas and opening brackets a body may have without being looked at:
// whatever they stand for takes 10 MB at most.
const fewMarks = 32_000

// checkJSON counts what a body would make before it is decoded. The body may be no JSON at all;
// then the count is one of what the decoder gets to see.
func checkJSON(body []byte, input protoreflect.FullName) *contract.Error {
	events := 2 // how deep they lie: in an array in an object
	switch input {
	case "runlog.v1.BatchAppendRequest":
		events = 4
	case "runlog.v1.AppendEventsRequest", "runlog.v1.CreateRunRequest":
	default:
		return nil
	}
	if len(body) <= fewMarks || marks(body) <= fewMarks {
		return nil
	}
	c := countJSON(body, events)
	switch {
	case events == 4 && (c.elements[2] > MaxBatchRequests || c.elements[4] > MaxBatchEvents):
		return CheckBatch(c.elements[2], c.elements[4])
	case events == 2 && c.elements[2] > contract.MaxEvents:
		return contract.WrongCount(c.elements[2])
	case c.values > maxValues:
		return tooManyValues()
	default:
		return nil
	}
}

// marks is no less than the number of values in a JSON text, and found at the speed of memory.
func marks(body []byte) int {
	return 1 + bytes.Count(body, []byte{','}) + bytes.Count(body, []byte{'{'}) + bytes.Count(body, []byte{'['})
}

// jsonCount is what a body holds.
type jsonCount struct {
	// elements of arrays, by how many objects and arrays lie around the element.
	elements [5]int
	// values within payloads.
	values int
}

// countJSON counts without looking at what else the text is. Events lie so deep that their payload,
// a member, is one deeper, and what the payload holds two.
func countJSON(body []byte, events int) (c jsonCount) {
	var arrays uint64 // bit d is set while the container at depth d is an array
	depth := 0
	count := func() {
		if depth >= 0 && depth < len(c.elements) && arrays>>depth&1 == 1 {
			c.elements[depth]++
		}
		if depth >= events+2 {
			c.values++
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
