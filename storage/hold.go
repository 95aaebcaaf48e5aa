package storage

import (
	"context"

	"runlog/storage/internal/record"
)

// A cluster that was restored is held: it leases no run and delivers no event, so that a copy does
// not act at the same time as its original. The hold is part of the applied state, Applied.Held,
// and so is the same on all nodes. It ends for good with a ReleaseHold. No clock says when a
// cluster was restored: it is held since its first entry, Applied.HeldSince.

// ReleaseHold is the operation that ends the hold. Without one, it changes nothing.
func ReleaseHold() (Operation, error) {
	return Operation{Kind: record.KindReleaseHold}, nil
}

// WaitReleased returns as soon as the cluster is not held, as far as this store knows, or with the
// context's error.
func (s *Store) WaitReleased(ctx context.Context) error {
	for a := s.Applied(); a.Held; a = s.Applied() {
		if err := s.Wait(ctx, a.Position()); err != nil {
			return err
		}
	}
	return nil
}
