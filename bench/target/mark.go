package target

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of the fields of WatchRunResponse, Watermark and Timestamp that are read.
const (
	fieldWatermark   = 1 // in WatchRunResponse; in CaughtUp and Heartbeat too
	fieldCaughtUp    = 2
	fieldHeartbeat   = 3
	fieldLastSeq     = 2 // in Watermark
	fieldPersistedAt = 5
	fieldSeconds     = 1 // in Timestamp
	fieldNanos       = 2
)

// parseMark parses a WatchRunResponse with a watermark, without allocations: there are hundreds of
// thousands a second. live: the watch has caught up.
func parseMark(message []byte) (m Mark, live bool) {
	eachField(message, func(number protowire.Number, v uint64, part []byte) {
		switch number {
		case fieldWatermark:
			m = parseWatermark(part)
		case fieldCaughtUp, fieldHeartbeat:
			live = true
			eachField(part, func(number protowire.Number, _ uint64, part []byte) {
				if number == fieldWatermark {
					m = parseWatermark(part)
				}
			})
		}
	})
	return m, live
}

func parseWatermark(b []byte) (m Mark) {
	eachField(b, func(number protowire.Number, v uint64, part []byte) {
		switch number {
		case fieldLastSeq:
			m.Seq = v
		case fieldPersistedAt:
			eachField(part, func(number protowire.Number, v uint64, _ []byte) {
				switch number {
				case fieldSeconds:
					m.PersistedAt += int64(v) * 1e9
				case fieldNanos:
					m.PersistedAt += int64(v)
				}
			})
		}
	})
	return m
}

// eachField calls field for the fields of a message: numbers with their value, bytes and messages
// with their content. It stops at a malformed field.
func eachField(b []byte, field func(number protowire.Number, v uint64, part []byte)) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		var v uint64
		var part []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			part, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return
		}
		field(number, v, part)
		b = b[n:]
	}
}
