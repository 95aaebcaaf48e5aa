package rpc

import (
	"runlog/proto/contract"
	"runlog/storage"
)

// HeldReason returns why a cluster leases no run and delivers no event, with the remedy; empty: it
// is not held.
func HeldReason(s *storage.Store) string {
	if !s.Applied().Held {
		return ""
	}
	return contract.ReasonClusterHeld.Info().Help
}

// Held refuses what a cluster does not do while it is held.
func Held(refused string) error {
	return &contract.Error{Reason: contract.ReasonClusterHeld, Message: Helpful(contract.ReasonClusterHeld, refused)}
}
