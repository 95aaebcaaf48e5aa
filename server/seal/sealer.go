package seal

import (
	"sync/atomic"

	"runlog/proof"
)

// Sealer signs for a node.
type Sealer struct {
	signer atomic.Pointer[proof.Signer]
}

// Sign returns a statement as a note that is signed with the cluster's key. While the node does not have the key, the note
// ends before its signatures.
func (s *Sealer) Sign(st *proof.Statement) (note string, signed bool, err error) {
	signer := s.signer.Load()
	if signer == nil {
		return proof.Unsigned(st), false, nil
	}
	note, err = signer.Sign(st)
	return note, err == nil, err
}
