package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

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

// HeldSince returns since when a cluster is held; nil: it is not, or has no entry yet.
func HeldSince(s *storage.Store) *timestamppb.Timestamp {
	a := s.Applied()
	if a.HeldSince == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, a.HeldSince))
}

// Held refuses what a cluster does not do while it is held.
func Held(refused string) error {
	return &contract.Error{Reason: contract.ReasonClusterHeld, Message: Helpful(contract.ReasonClusterHeld, refused)}
}
