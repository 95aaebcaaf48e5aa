package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"runlog/storage"
)

// TestUnrecordedBUS6: a leader that cannot record acknowledgements hands out no more events after a
// second. So the next leader repeats a second of acknowledgements at most, however long this one
// goes on.
func TestUnrecordedBUS6(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"sink:s", "pull"} {
		for _, sameLeader := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,%t", how, sameLeader), func(t *testing.T) {
				t.Parallel()
				run(t, 1, func(b *bed) { b.unrecorded(how, sameLeader) })
			})
		}
	}
}

func (b *bed) unrecorded(how string, sameLeader bool) {
	close(b.healthy)
	s := b.make("t1", "s", how, nil)
	// Some event is always under way, so that a cursor takes two settlements to pass it.
	s.answer = func(storage.Record) error {
		time.Sleep(25 * time.Millisecond)
		return nil
	}
	ctx, end := context.WithCancel(b.t.Context())
	defer end()
	if how == "pull" {
		s.consume(ctx)
	}
	const every, runs = 10 * time.Millisecond, 50
	appended := 0
	appendFor := func(d time.Duration) {
		for range d / every {
			b.append(fmt.Sprint("t1_", appended%runs), types[0], 1)
			appended++
			time.Sleep(every)
		}
	}
	appendFor(3 * time.Second)
	b.node.set(func(n *node) { n.cut = true })
	appendFor(5 * time.Second)
	most := int(time.Second/every) + int(s.settings.MaxInFlight)
	if n := s.taken(); n < int(2*time.Second/every) || n > int(3*time.Second/every)+most {
		b.t.Errorf("%d events were acknowledged of the %d before the last record and of the second behind it", n, 3*time.Second/every)
	}
	b.node.set(func(n *node) { n.cut = false })
	if sameLeader {
		most = 0
	} else {
		b.lossy = true // What comes again is counted below.
		b.node.lead(false)
		synctest.Wait()
		b.node.lead(true)
	}
	appendFor(5 * time.Second)
	time.Sleep(time.Second)
	synctest.Wait()
	if n := s.taken(); n != appended {
		b.t.Errorf("%d of %d events were acknowledged", n, appended)
	}
	if s.repeats > most {
		b.t.Errorf("%d events were acknowledged twice, want at most %d", s.repeats, most)
	}
}

// taken returns how many events were acknowledged.
func (s *sub) taken() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.got {
		if !f.acked.IsZero() {
			n++
		}
	}
	return n
}
