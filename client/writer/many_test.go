package writer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"runlog/client"
	"runlog/client/outbox"
	"runlog/proto/contract"
)

// written is a call of TestManyCallers, and what it told. Moments are numbers, in their order.
type written struct {
	run, key   string
	began, end int
	err        error
}

// TestManyCallers: several callers write to a run, leave, and meet outages and restarts. What Write
// called stored or parked is stored, and behind what was so called before its call began. What it
// refused for good is not stored.
func TestManyCallers(t *testing.T) {
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Uint64().Draw(r, "seed")
		n++
		path := filepath.Join(dir, fmt.Sprint("outbox-", n))
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			log := newLog(rng.IntN(2) == 0)
			log.rng = rand.New(rand.NewPCG(seed, 2))
			var mu sync.Mutex
			moment, calls := 0, []*written{}
			now := func() int {
				mu.Lock()
				defer mu.Unlock()
				moment++
				return moment
			}
			for life := range 3 {
				w, end := open(t, path, log, Options{})
				var all sync.WaitGroup
				for caller := range 5 {
					rng := rand.New(rand.NewPCG(seed, uint64(10*life+caller)+3))
					all.Go(func() {
						for i := range 8 {
							time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
							if caller == 0 {
								log.set(rng.IntN(2) == 0)
								continue
							}
							ctx, cancel := context.WithCancel(t.Context())
							if rng.IntN(4) == 0 {
								time.AfterFunc(time.Duration(rng.Int64N(int64(4*time.Second))), cancel)
							}
							c := &written{run: fmt.Sprint("r", rng.IntN(2)), key: fmt.Sprint(life, caller, i), began: now()}
							_, c.err = w.Write(ctx, event(c.run, []string{contract.StepStarted, contract.StepCompleted}[rng.IntN(2)], c.key))
							c.end = now()
							cancel()
							mu.Lock()
							calls = append(calls, c)
							mu.Unlock()
						}
					})
				}
				all.Wait()
				end()
			}
			log.set(true)
			w, end := open(t, path, log, Options{})
			for w.opts.Outbox.Stats().Pending > 0 {
				time.Sleep(time.Second)
			}
			end()
			checkWritten(t, log, calls)
		})
	})
}

func checkWritten(t *testing.T, log *logFake, calls []*written) {
	place := map[string]int{} // from 1
	for _, run := range []string{"r0", "r1"} {
		for i, key := range log.of(run) {
			place[key] = i + 1
		}
	}
	for _, c := range calls {
		e, isClient := errors.AsType[*client.Error](c.err)
		_, unsettled := errors.AsType[*outbox.UnsettledError](c.err)
		open := unsettled || isClient && e.Unknown()
		switch {
		case c.err == nil && place[c.key] == 0:
			t.Errorf("%s is lost", c.key)
		case c.err != nil && !open && place[c.key] != 0:
			t.Errorf("%s is stored, and Write said %v", c.key, c.err)
		}
		for _, o := range calls {
			if c.err == nil && o.err == nil && c.run == o.run && o.end < c.began && place[o.key] > place[c.key] {
				t.Errorf("%s is number %d of its run, and %s, which was written before, number %d", c.key, place[c.key], o.key, place[o.key])
			}
		}
	}
}
