package outbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

// Format of the file; docs/formats.md describes it.
const (
	formatVersion = 1
	headerBytes   = 32
	// maxFrameBytes bounds a frame, and maxRequestBytes the request in it. A server takes requests
	// of at most 4 MiB by default.
	maxFrameBytes   = 32 << 20
	maxRequestBytes = maxFrameBytes - maxFrameBytes/128
	// maxReasonBytes bounds the reason of a rejection.
	maxReasonBytes = 4 << 10
)

var (
	magic      = []byte("runlog/outbox\x00")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// kind is the first byte of a frame's content.
type kind byte

const (
	kindPut    kind = 1
	kindRemove kind = 2
	kindReject kind = 3
)

// header is the beginning of a file.
type header struct {
	version uint16
	// next is the lowest id that a record can have which was put into this file. A lower one was
	// carried over from an earlier file.
	next uint64
	// carried is the number of records that were carried over.
	carried uint32
}

func (h header) encode() []byte {
	b := make([]byte, 0, headerBytes)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, h.version)
	b = binary.BigEndian.AppendUint64(b, h.next)
	b = binary.BigEndian.AppendUint32(b, h.carried)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeHeader reads a header. ours: it has the magic. intact: its checksum matches too.
func decodeHeader(b []byte) (h header, ours, intact bool) {
	if len(b) < headerBytes {
		return header{}, false, false
	}
	b = b[:headerBytes]
	n := len(magic)
	h = header{
		version: binary.BigEndian.Uint16(b[n:]),
		next:    binary.BigEndian.Uint64(b[n+2:]),
		carried: binary.BigEndian.Uint32(b[n+10:]),
	}
	ours = bytes.HasPrefix(b, magic)
	intact = crc32.Checksum(b[:headerBytes-4], castagnoli) == binary.BigEndian.Uint32(b[headerBytes-4:])
	return h, ours, ours && intact
}

// frame is the decoded content of a frame.
type frame struct {
	kind kind
	id   uint64 // of a put or a rejection
	// at is when the record was put or rejected.
	at time.Time
	// data is the request of a put, or the reason of a rejection.
	data []byte
	// ids are those of a removal.
	ids []uint64
}

var errFrame = errors.New("the frame is damaged")

// encode returns the frame as it lies in the file, with a zero byte at both ends.
func (f frame) encode() []byte {
	content := make([]byte, 1, 1+16+len(f.data)+8*len(f.ids)+4)
	content[0] = byte(f.kind)
	if f.kind == kindRemove {
		for _, id := range f.ids {
			content = binary.BigEndian.AppendUint64(content, id)
		}
	} else {
		content = binary.BigEndian.AppendUint64(content, f.id)
		content = binary.BigEndian.AppendUint64(content, uint64(f.at.UnixNano()))
		content = append(content, f.data...)
	}
	content = binary.BigEndian.AppendUint32(content, crc32.Checksum(content, castagnoli))
	out := make([]byte, 1, len(content)+len(content)/254+3)
	return append(stuff(out, content), 0)
}

// frameBytes returns the size of the frame of a put or a rejection with n bytes of data, or a
// little more.
func frameBytes(n int) int {
	n += 1 + 16 + 4
	return n + n/254 + 3
}

// decodeFrame reads what lies between the zero bytes of a frame. The frame does not share memory
// with stuffed.
func decodeFrame(stuffed []byte) (frame, error) {
	content, ok := unstuff(make([]byte, 0, len(stuffed)), stuffed)
	if !ok || len(content) < 1+8+4 {
		return frame{}, errFrame
	}
	sum := binary.BigEndian.Uint32(content[len(content)-4:])
	content = content[:len(content)-4]
	if crc32.Checksum(content, castagnoli) != sum {
		return frame{}, errFrame
	}
	f := frame{kind: kind(content[0])}
	body := content[1:]
	switch f.kind {
	case kindPut, kindReject:
		if len(body) < 16 {
			return frame{}, errFrame
		}
		f.id = binary.BigEndian.Uint64(body)
		f.at = time.Unix(0, int64(binary.BigEndian.Uint64(body[8:]))).UTC()
		f.data = body[16:]
	case kindRemove:
		if len(body)%8 != 0 {
			return frame{}, errFrame
		}
		for ; len(body) > 0; body = body[8:] {
			f.ids = append(f.ids, binary.BigEndian.Uint64(body))
		}
	default:
		return frame{}, errFrame
	}
	return f, nil
}

// stuff appends content without its zero bytes: consistent overhead byte stuffing (S. Cheshire and
// M. Baker, 1999). Each block is a length from 1 to 255 and that many bytes less one. A zero byte
// follows a block, unless its length is 255 or it is the last one.
func stuff(dst, content []byte) []byte {
	for {
		n := bytes.IndexByte(content[:min(len(content), 254)], 0)
		switch {
		case n >= 0:
			dst = append(append(dst, byte(n+1)), content[:n]...)
			content = content[n+1:]
		case len(content) >= 254:
			dst = append(append(dst, 255), content[:254]...)
			content = content[254:]
		default:
			return append(append(dst, byte(len(content)+1)), content...)
		}
	}
}

// unstuff appends the content of stuffed; false: it was not made by stuff.
func unstuff(dst, stuffed []byte) ([]byte, bool) {
	for {
		if len(stuffed) == 0 || stuffed[0] == 0 || int(stuffed[0]) > len(stuffed) {
			return dst, false
		}
		n := int(stuffed[0])
		dst = append(dst, stuffed[1:n]...)
		stuffed = stuffed[n:]
		switch {
		case n == 255:
		case len(stuffed) == 0:
			return dst, true
		default:
			dst = append(dst, 0)
		}
	}
}
