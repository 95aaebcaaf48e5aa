package server

import "runlog/storage"

// Applied returns how far the node is, with the rolling hash of all that it has applied: at one
// index, it is the same on all nodes.
func (s *Server) Applied() storage.Applied { return s.store.Applied() }
