package record

import "encoding/binary"

// Assigned is what the authority of a run had assigned to an event.
type Assigned struct {
	RunSeq      uint64
	PersistedAt int64  // nanoseconds
	AppendedBy  string // the identity that it had authenticated; empty: none
}

// AssignedSize is runSeq (8) and persistedAt (8).
const AssignedSize = 16

func (g *Assigned) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, g.RunSeq)
	return binary.BigEndian.AppendUint64(dst, uint64(g.PersistedAt))
}

// ParseAssigned decodes what AppendCommand.Assigned has for one event.
func ParseAssigned(b []byte) Assigned {
	return Assigned{RunSeq: binary.BigEndian.Uint64(b), PersistedAt: int64(binary.BigEndian.Uint64(b[8:]))}
}

// Imports says whether the events keep what another authority had assigned to them.
func (c *AppendCommand) Imports() bool { return len(c.Assigned) > 0 }
