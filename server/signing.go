package server

import "runlog/proof"

// sign returns a statement as a note that is signed with the cluster's key. While the node does not have the key,
// AUDIT_KEY_MISSING stands, and the note ends before its signatures.
func (s *Server) sign(st *proof.Statement) (note string, signed bool, err error) {
	return s.sealer.Sign(st)
}
