package record

import (
	"encoding/binary"
	"fmt"

	"runlog/proto/contract"
)

// noticeSize is the index of an event among the headers (4), and its contract.Notice (1).
const noticeSize = 5

// Notices are those events of a request of which machines learn, in their order.
type Notices []byte

// All calls a function with the index and the notice of each event.
func (n Notices) All(yield func(index int, notice contract.Notice) bool) {
	for ; len(n) > 0; n = n[noticeSize:] {
		if !yield(int(binary.BigEndian.Uint32(n)), contract.Notice(n[4])) {
			return
		}
	}
}

// appendNotices appends the field of the events of which machines learn, if there are any.
func appendNotices(m []byte, events []contract.Event) []byte {
	var rows []byte
	for i := range events {
		if n := contract.NoticeOf(&events[i]); n != 0 {
			rows = append(binary.BigEndian.AppendUint32(rows, uint32(i)), byte(n))
		}
	}
	if len(rows) == 0 {
		return m
	}
	return appendBytes(m, 15, rows)
}

func parseNotices(b []byte) (Notices, error) {
	if len(b)%noticeSize != 0 {
		return nil, fmt.Errorf("%w: %d bytes of notices", errWire, len(b))
	}
	return b, nil
}
