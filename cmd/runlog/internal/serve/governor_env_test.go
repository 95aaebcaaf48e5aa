package serve

import (
	"context"
	"runtime"
	"testing"

	"runlog/testbed/bubble"
)

// TestOperatorGoverns: where GOMAXPROCS is set, the governor ends at once and changes nothing.
func TestOperatorGoverns(t *testing.T) {
	high := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "2")
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), procsCalm*procsEvery*3)
		defer cancel()
		governProcs(ctx)
		if ctx.Err() != nil {
			t.Error("the governor goes on")
		}
	})
	if got := runtime.GOMAXPROCS(0); got != high {
		t.Errorf("%d cores, had %d", got, high)
	}
}
