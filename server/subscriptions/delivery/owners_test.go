package delivery

import (
	"fmt"
	"testing"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// TestSilentConsumerBUS9: what a consumer never settles is forgotten after its deadline, also if
// the consumer stays.
func TestSilentConsumerBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		term := openTerm(t)
		s := routed(t, term)
		s.settings.AckTimeout = 1
		s.window.Set(s.settings)
		s.attach(s.window)
		c := &Consumer{s: s, wake: make(chan struct{}, 1)}
		for i := range 20 {
			e := &window.Event{Run: &storage.Run{RunID: fmt.Sprint("run_", i)}, Record: &storage.Record{}}
			e.Record.RunID, e.Record.RunSeq, e.Record.Position = e.Run.RunID, 1, storage.Position(i+1)
			s.mu.Lock()
			s.window.Push(e.Record.Position, e)
			s.mu.Unlock()
			if list, err := s.take(c, 1); len(list) != 1 || err != nil {
				t.Fatalf("%d events, %v", len(list), err)
			}
			time.Sleep(time.Microsecond)
			s.tick()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if st := s.window.Stats(); len(s.owners) > 0 || st.InFlight > 0 || st.Letters != 20 {
			t.Errorf("%d events have an owner; %+v", len(s.owners), st)
		}
	})
}
