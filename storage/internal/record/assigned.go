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

// AssignedSize is runSeq (8) and the imported digest (8).
const AssignedSize = 16

// appendAssigned appends what apply needs of an imported event.
func appendAssigned(dst []byte, g *Assigned, e *contract.Event) []byte {
	dst = binary.BigEndian.AppendUint64(dst, g.RunSeq)
	digest := e.ImportedDigest(g.Original)
	return append(dst, digest[:]...)
}

// Imports says whether the events come from another authority.
func (c *AppendCommand) Imports() bool { return len(c.Assigned) > 0 }

// AssignedSeq returns the runSeq that the i-th event of an import keeps.
func (c *AppendCommand) AssignedSeq(i int) uint64 {
	return binary.BigEndian.Uint64(c.Assigned[i*AssignedSize:])
}

// Fingerprint is that of the i-th event, whose header is h, as a receipt has it.
func (c *AppendCommand) Fingerprint(i int, h *Header, k *Keyer) Fingerprint {
	s := Fingerprint{Content: k.key(h.Content, ofContent)}
	if c.Imports() {
		s.Imported = k.key([8]byte(c.Assigned[i*AssignedSize+8:]), ofImported)
	}
	return s
}
