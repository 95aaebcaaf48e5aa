package temporal_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"runlog/engine/temporal"
)

// stopping is a worker that stops once the others have been told to.
type stopping struct{ told *sync.WaitGroup }

// Stop waits for the others.
func (s stopping) Stop() { s.told.Done(); s.told.Wait() }

// TestStopENG3: an engine that is to end stops the workers of all its task queues at once. A worker
// that waits for its steps lets no other one take new ones meanwhile, and no step has less than
// its Grace.
func TestStopENG3(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		var told sync.WaitGroup
		told.Add(3)
		temporal.StopAll([]stopping{{&told}, {&told}, {&told}})
	})
}
