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
		_, r := openTerm(t)
		s := joined(t, r)
		s.call(func() {
			s.settings.AckTimeout = 1
			s.window.Set(s.settings)
		})
		c := &Consumer{s: s, wake: make(chan struct{}, 1)}
		for i := range 20 {
			e := &window.Event{Run: &storage.Run{RunID: fmt.Sprint("run_", i)}, Record: &storage.Record{}}
			e.Record.RunID, e.Record.RunSeq, e.Record.Position = e.Run.RunID, 1, storage.Position(i+1)
			s.call(func() {
				s.window.Push(e.Record.Position, e)
				if list, err := s.take(c, 1); len(list) != 1 || err != nil {
					t.Errorf("%d events, %v", len(list), err)
				}
			})
			time.Sleep(time.Microsecond)
			s.call(s.tick)
		}
		s.call(func() {
			if st := s.window.Stats(); len(s.receivers) > 0 || st.InFlight > 0 || st.Letters != 20 {
				t.Errorf("%d events have a receiver; %+v", len(s.receivers), st)
			}
		})
	})
}
