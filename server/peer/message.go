package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A message of the handshake. The head and the refusal are the same in all versions, so that each
// version can refuse any other and be understood. Integers are big endian.
//
//	7  "runlog\n"
//	1  version of the handshake
//	1  message: 'h' hello, 'w' welcome, 'g' go, 'x' refusal
//	1  kind of the connection; 0 in a refusal before it was known
//	2  length of the body, at most 4080
//	   body
//	4  CRC32C of everything before
//
// The body of hello and welcome: node id, Raft ID, cluster id (16), format (4), build, and the
// wanted Raft ID (hello) or nothing (welcome). The body of a refusal: reason, then the message
// after a length of two bytes. Texts follow a length of one byte.
const (
	magic            = "runlog\n" // an HTTP server answers this line with a bad request
	handshakeVersion = 1
	headSize         = len(magic) + 5
	maxBody          = 4080
	maxNodeID        = 200
	maxField         = 255
	maxReason        = 64
	maxMessage       = 2048
)

type messageType byte

const (
	hello   messageType = 'h'
	welcome messageType = 'w'
	proceed messageType = 'g'
	refusal messageType = 'x'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errMessage is a message that starts as one of runlog but is malformed.
var errMessage = errors.New("peer: damaged message")

// errIdentity is an identity of this end that no node can have.
var errIdentity = errors.New("peer: no identity")

// strangerError means that the bytes do not start as a message of runlog.
type strangerError struct{ first []byte } // the first bytes, at most the length of a head

func (e *strangerError) Error() string {
	return fmt.Sprintf("peer: no runlog node: began with %q", e.first)
}

// versionError means that the other end has another handshake version.
type versionError byte

func (e versionError) Error() string { return fmt.Sprintf("peer: handshake of version %d", byte(e)) }

// message is a decoded message; Type selects the valid fields.
type message struct {
	Type     messageType
	Kind     Kind
	Identity Identity
	Want     string
	Reason   Reason
	Text     string
}

// encode fails on an identity that is not one.
func (m message) encode() ([]byte, error) {
	b := make([]byte, 0, 256)
	b = append(b, magic...)
	b = append(b, handshakeVersion, byte(m.Type), byte(m.Kind), 0, 0)
	switch m.Type {
	case hello, welcome:
		if err := m.Identity.validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", errIdentity, err)
		}
		if len(m.Want) > maxField || !plain(m.Want) {
			return nil, fmt.Errorf("%w: %q cannot be a Raft name that is wanted", errIdentity, clip(m.Want, maxField))
		}
		b = appendText(b, m.Identity.NodeID)
		b = appendText(b, m.Identity.RaftID)
		b = append(b, m.Identity.Cluster[:]...)
		b = binary.BigEndian.AppendUint32(b, m.Identity.Format)
		b = appendText(b, m.Identity.Version)
		b = appendText(b, m.Want)
	case refusal:
		text := clip(m.Text, maxMessage)
		b = appendText(b, clip(string(m.Reason), maxReason))
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	binary.BigEndian.PutUint16(b[headSize-2:], uint16(len(b)-headSize))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

func appendText(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// readMessage reads one message and not a byte more. Errors: *strangerError, versionError,
// errMessage, the reader's.
func readMessage(r io.Reader) (message, error) {
	head := make([]byte, headSize)
	n, err := io.ReadFull(r, head)
	if known := min(n, len(magic)); string(head[:known]) != magic[:known] {
		return message{}, &strangerError{head[:n]}
	}
	if err != nil {
		return message{}, err
	}
	size := int(binary.BigEndian.Uint16(head[headSize-2:]))
	if size > maxBody {
		return message{}, fmt.Errorf("%w: a body of %d bytes", errMessage, size)
	}
	all := make([]byte, headSize+size+4)
	copy(all, head)
	if _, err := io.ReadFull(r, all[headSize:]); err != nil {
		return message{}, err
	}
	data, sum := all[:headSize+size], all[headSize+size:]
	if crc32.Checksum(data, castagnoli) != binary.BigEndian.Uint32(sum) {
		return message{}, fmt.Errorf("%w: checksum", errMessage)
	}
	return decode(data)
}

// decode parses a message without its checksum.
func decode(data []byte) (message, error) {
	version := data[len(magic)]
	m := message{Type: messageType(data[len(magic)+1]), Kind: Kind(data[len(magic)+2])}
	if version != handshakeVersion && m.Type != refusal {
		return m, versionError(version)
	}
	if !m.Kind.known() && (m.Type != refusal || m.Kind != 0) {
		return m, fmt.Errorf("%w: %v", errMessage, m.Kind)
	}
	f := fields{rest: data[headSize:]}
	switch m.Type {
	case hello, welcome:
		m.Identity.NodeID = f.text()
		m.Identity.RaftID = f.text()
		copy(m.Identity.Cluster[:], f.take(len(m.Identity.Cluster)))
		if b := f.take(4); b != nil {
			m.Identity.Format = binary.BigEndian.Uint32(b)
		}
		m.Identity.Version = f.text()
		m.Want = f.text()
		if err := m.Identity.validate(); !f.short && err != nil {
			return m, fmt.Errorf("%w: %w", errMessage, err)
		}
		if !plain(m.Want) || m.Type == welcome && m.Want != "" {
			return m, fmt.Errorf("%w: wanted Raft name", errMessage)
		}
	case proceed:
	case refusal:
		m.Reason = Reason(clip(f.text(), maxReason))
		if b := f.take(2); b != nil {
			m.Text = clip(string(f.take(int(binary.BigEndian.Uint16(b)))), maxMessage)
		}
	default:
		return m, fmt.Errorf("%w: type %d", errMessage, m.Type)
	}
	if f.short || len(f.rest) > 0 {
		return m, fmt.Errorf("%w: length of its fields", errMessage)
	}
	return m, nil
}

// fields takes a body apart; after it was too short, everything is empty.
type fields struct {
	rest  []byte
	short bool
}

func (f *fields) take(n int) []byte {
	if f.short || len(f.rest) < n {
		f.short = true
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) text() string {
	b := f.take(1)
	if b == nil {
		return ""
	}
	return string(f.take(int(b[0])))
}
