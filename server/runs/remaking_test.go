package runs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"runlog/projector"
	"runlog/proto/contract"
	"runlog/storage"
)

// TestListWaitsForTheDatabase (PRJ-13): while a damaged database is being rebuilt, a list waits for
// it until the deadline of its call.
func TestListWaitsForTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		remaking := func(times int) func() (storage.Position, error) {
			return func() (storage.Position, error) {
				if tries++; tries <= times {
					return 0, projector.ErrRemaking
				}
				return 0, nil
			}
		}
		if _, err := remade(t.Context(), remaking(3)); err != nil || tries != 4 {
			t.Errorf("%d tries: %v", tries, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*remakingPause)
		defer cancel()
		_, err := remade(ctx, remaking(1000))
		if e, ok := errors.AsType[*contract.Error](err); !ok || e.Reason != contract.ReasonNotReached {
			t.Errorf("at the deadline: %v, want %s", err, contract.ReasonNotReached)
		}
	})
}
