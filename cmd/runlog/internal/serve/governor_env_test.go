package serve

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// TestOperatorGoverns: where GOMAXPROCS is set, the governor ends at once and changes nothing.
func TestOperatorGoverns(t *testing.T) {
	high := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		governProcs(ctx)
	}()
	select {
	case <-done:
	case <-time.After(procsCalm * procsEvery * 3):
		cancel()
		<-done
		t.Error("the governor goes on")
	}
	if got := runtime.GOMAXPROCS(0); got != high {
		t.Errorf("%d cores, had %d", got, high)
	}
}
