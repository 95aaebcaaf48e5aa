package record

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
)

// A proposal is one entry of the Raft log (D1):
//
//	offset  size  field
//	     0     1  format version, 1
//	     1    16  cluster id
//	    17     4  partition, 0
//	    21     8  the leader's clock, nanoseconds since 1970
//	    29     4  number of commands
//	    33        commands: length (4) and record.v1.Command, one after the other
//	  last     4  CRC32C of everything before
//
// Integers are big endian.
const (
	proposalFormat   = 1
	proposalHeader   = 33
	proposalOverhead = proposalHeader + 4
	commandOverhead  = 4
)

// ClusterID names a cluster; a proposal of another cluster is never applied.
type ClusterID [16]byte

// Incarnation names one history of a cluster's log. A restore and a recovery begin another one, in
// which another entry may have the same position (READ-7). Until a BeginIncarnation it is the begin
// of the cluster id.
type Incarnation [8]byte

// First is the incarnation in which a cluster begins.
func (c ClusterID) First() Incarnation { return Incarnation(c[:8]) }

// String returns 16 hexadecimal digits.
func (i Incarnation) String() string { return hex.EncodeToString(i[:]) }

// Castagnoli is the table of every CRC32C.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrProposal means that a log entry is not a proposal.
var ErrProposal = errors.New("storage: undecodable proposal")

// Proposal builds one log entry out of encoded commands.
type Proposal struct {
	buf   []byte
	count uint32
}

// NewProposal starts a proposal with room for size bytes of commands.
func NewProposal(cluster ClusterID, size int) *Proposal {
	p := &Proposal{buf: make([]byte, proposalHeader, proposalOverhead+size)}
	p.buf[0] = proposalFormat
	copy(p.buf[1:17], cluster[:])
	return p
}

// Add appends a command.
func (p *Proposal) Add(c Command) {
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(len(c.data)))
	p.buf = append(p.buf, c.data...)
	p.count++
}

// Seal stamps the leader's clock, in nanoseconds, and returns the log entry. The proposal is used
// up.
func (p *Proposal) Seal(clock int64) []byte {
	binary.BigEndian.PutUint64(p.buf[21:], uint64(clock))
	binary.BigEndian.PutUint32(p.buf[29:], p.count)
	return binary.BigEndian.AppendUint32(p.buf, crc32.Checksum(p.buf, Castagnoli))
}

// ClockOf returns the leader's clock in a proposal, unchecked; false: data is none.
func ClockOf(data []byte) (int64, bool) {
	if len(data) < proposalOverhead || data[0] != proposalFormat {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(data[21:])), true
}

// Entry is a decoded proposal. It aliases the log entry's bytes.
type Entry struct {
	Cluster   ClusterID
	Partition uint32
	Clock     int64
	Count     int
	commands  []byte
	CRC       uint32
}

// ParseProposal decodes what a proposal has before its commands.
func ParseProposal(data []byte) (Entry, error) {
	if len(data) < proposalOverhead {
		return Entry{}, fmt.Errorf("%w: %d bytes", ErrProposal, len(data))
	}
	if data[0] != proposalFormat {
		return Entry{}, fmt.Errorf("%w: format version %d, this build knows %d", ErrProposal, data[0], proposalFormat)
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if got := crc32.Checksum(body, Castagnoli); got != sum {
		return Entry{}, fmt.Errorf("%w: CRC32C %08x, want %08x", ErrProposal, got, sum)
	}
	e := Entry{
		Partition: binary.BigEndian.Uint32(data[17:]),
		Clock:     int64(binary.BigEndian.Uint64(data[21:])),
		Count:     int(binary.BigEndian.Uint32(data[29:])),
		commands:  body[proposalHeader:],
		CRC:       sum,
	}
	if e.Count > len(e.commands)/commandOverhead {
		return Entry{}, fmt.Errorf("%w: %d commands in %d bytes", ErrProposal, e.Count, len(e.commands))
	}
	copy(e.Cluster[:], data[1:17])
	return e, nil
}

// Next cuts the next command off e.commands.
func (e *Entry) Next() ([]byte, error) {
	if len(e.commands) < commandOverhead {
		return nil, fmt.Errorf("%w: cut off before a command", ErrProposal)
	}
	n := int(binary.BigEndian.Uint32(e.commands))
	rest := e.commands[commandOverhead:]
	if n > len(rest) {
		return nil, fmt.Errorf("%w: command of %d bytes, %d left", ErrProposal, n, len(rest))
	}
	e.commands = rest[n:]
	return rest[:n], nil
}

// End is called after the last command.
func (e *Entry) End() error {
	if len(e.commands) > 0 {
		return fmt.Errorf("%w: %d bytes after the last command", ErrProposal, len(e.commands))
	}
	return nil
}
