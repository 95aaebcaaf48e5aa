package projector

import (
	"fmt"
	"testing"
	"time"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/testbed/bubble"
)

// TestWatchersOverARebuildWATCH3 appends all the while that the database is replaced by a rebuilt
// one: watchers of one run and of many get what was committed meanwhile, and every run's last
// watermark (WATCH-1, WATCH-2, PRJ-13).
func TestWatchersOverARebuildWATCH3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const runs = 200
		b := newBed(t)
		tr := newTraffic(b, 13)
		sub, err := b.p.SubscribeRuns(run.Filter{}, &watch.Cursor{})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		all := newFollower(t, run.Filter{})
		ones := map[string]*watch.Subscription{}
		for run := range runs {
			id := fmt.Sprint("run-", run)
			if ones[id], err = b.p.Subscribe(id, nil); err != nil {
				t.Fatal(err)
			}
			defer ones[id].Close()
		}
		last := map[string]uint64{}
		for round := range 3 {
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Microsecond):
						tr.propose(1, runs)
					}
				}
			}()
			b.rebuild()
			close(stop)
			<-stopped
			drain(t, b, sub, all.told)
			what := fmt.Sprint("rebuild ", round)
			all.check(what, b)
			history, _ := b.history()
			for id, want := range history {
				// Subscriptions to one run learn before those to many, which have got everything.
				if s := ones[id].Take(); s != nil {
					last[id] = s.LastEventSeq
				}
				if last[id] != want.LastEventSeq {
					t.Errorf("%s: who watches %s was told of %d, want %d", what, id, last[id], want.LastEventSeq)
				}
			}
			if t.Failed() {
				break
			}
		}
	})
}
