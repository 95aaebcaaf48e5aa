package replay_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"runlog/engine/replay"
	"runlog/proto/contract"
)

// TestSizeIsEnough: a state takes no more bytes than its Size, by which engines bound what they
// keep.
func TestSizeIsEnough(t *testing.T) { // Alone: it looks at the heap.
	for name, output := range map[string]string{"large outputs": strings.Repeat("x", 31<<10), "small events": "x"} {
		const steps = 500
		before := heap()
		s := replay.New()
		for i := range steps {
			id := fmt.Sprintf("a step with a rather long name %d", i)
			s.Apply(event(uint64(2*i+1), contract.StepStarted, id, 1, []byte("{}")))
			s.Apply(event(uint64(2*i+2), contract.StepCompleted, id, 1, []byte(`{"output":"`+output+`"}`)))
		}
		// Memory is given out in some sizes only.
		if used := heap() - before; used > s.Size()+s.Size()/8 {
			t.Errorf("%s: a state takes %d bytes, and says %d", name, used, s.Size())
		}
		runtime.KeepAlive(s)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
