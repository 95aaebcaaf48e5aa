package record

import (
	"encoding/binary"

	"runlog/proto/contract"
)

// Assigned is what an imported event keeps of the authority that it comes from (APP-13).
type Assigned struct {
	RunSeq   uint64
	Original contract.Original
}

// AssignedSize is runSeq (8) and a recordPrefix (8).
const AssignedSize = 16

// appendAssigned appends what apply needs of an imported event.
func appendAssigned(dst []byte, g *Assigned, e *contract.Event) []byte {
	dst = binary.BigEndian.AppendUint64(dst, g.RunSeq)
	_, digest := e.Digests(contract.Author{}, g.Original)
	return append(dst, digest[:len(recordPrefix{})]...)
}

// Imports says whether the events come from another authority.
func (c *AppendCommand) Imports() bool { return len(c.Assigned) > 0 }

// AssignedSeq returns the runSeq that the i-th event of an import keeps.
func (c *AppendCommand) AssignedSeq(i int) uint64 {
	return binary.BigEndian.Uint64(c.Assigned[i*AssignedSize:])
}

// Fingerprint is that of the i-th event, whose header is h.
func (c *AppendCommand) Fingerprint(i int, h *Header) Fingerprint {
	s := Fingerprint{Content: h.Content}
	if c.Imports() {
		s.Record = recordPrefix(c.Assigned[i*AssignedSize+8:])
	}
	return s
}
