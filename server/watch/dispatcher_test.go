package watch

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	grpcencoding "google.golang.org/grpc/encoding"
)

// reader is a stream of a dispatcher: news are numbers that rise, of which it gets the newest.
type reader struct {
	t      *testing.T
	d      *dispatcher
	post   *post
	newest atomic.Int64
	told   atomic.Int64
	beats  atomic.Int64
	at     atomic.Int64  // of the last delivery, in nanoseconds
	hang   chan struct{} // a delivery waits for it; nil: none does
	takes  time.Duration // a delivery does
	err    error         // of the next delivery
	inside atomic.Int32
}

func newReader(t *testing.T, d *dispatcher) *reader {
	r := &reader{t: t, d: d}
	r.post = d.join(r)
	d.release(r.post)
	return r
}

func (r *reader) publish(n int64) {
	r.newest.Store(n)
	r.d.news(r.post)
}

func (r *reader) deliver(beat bool, _ messages) error {
	if r.inside.Add(1) != 1 {
		r.t.Error("two deliveries to one stream at a time")
	}
	defer r.inside.Add(-1)
	if n := r.newest.Load(); n > r.told.Load() {
		if r.hang != nil {
			<-r.hang
		}
		time.Sleep(r.takes)
		r.told.Store(n)
	} else if beat {
		r.beats.Add(1)
	}
	r.at.Store(time.Now().UnixNano())
	return r.err
}

// TestDispatcherTellsTheNewestWATCH3: whatever comes when, each stream gets the last of it.
func TestDispatcherTellsTheNewestWATCH3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher(time.Hour)
		readers := make([]*reader, 500)
		for i := range readers {
			readers[i] = newReader(t, d)
		}
		var publishers sync.WaitGroup
		for p := range 4 {
			publishers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(p), 1))
				for n := range int64(2000) {
					// Each publisher has a quarter of the streams.
					readers[rng.IntN(len(readers)/4)*4+p].publish(n + 1)
					if rng.IntN(50) == 0 {
						time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
					}
				}
			})
		}
		publishers.Wait()
		time.Sleep(longestRest + stuckAfter)
		for i, r := range readers {
			if r.told.Load() != r.newest.Load() {
				t.Errorf("stream %d was told %d of %d", i, r.told.Load(), r.newest.Load())
			}
			d.leave(r.post)
		}
		d.close()
	})
}

// TestDispatcherGoesRoundStreamsThatHangWATCH3: the others wait for a moment, once; and one that
// hangs gets the newest when it reads again.
func TestDispatcherGoesRoundStreamsThatHangWATCH3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher(time.Hour)
		hang := make(chan struct{})
		var readers []*reader
		for i := range 30 {
			r := newReader(t, d)
			switch i % 3 {
			case 0:
				r.hang = hang
			case 1:
				r.takes = 5 * stuckAfter
			}
			readers = append(readers, r)
		}
		for n := range int64(3) {
			begun := time.Now()
			for _, r := range readers {
				r.publish(n + 1)
			}
			time.Sleep(time.Second)
			for i, r := range readers {
				if r.hang == nil && r.told.Load() != n+1 {
					t.Errorf("stream %d was told %d of %d", i, r.told.Load(), n+1)
				}
				late := time.Unix(0, r.at.Load()).Sub(begun)
				if most := 20 * 2 * stuckAfter; i%3 == 2 && (late > most || n > 0 && late >= stuckAfter) {
					t.Errorf("round %d: stream %d was told after %v", n, i, late)
				}
			}
		}
		close(hang)
		time.Sleep(time.Second)
		for i, r := range readers {
			if r.told.Load() != 3 {
				t.Errorf("stream %d was told %d of 3 in the end", i, r.told.Load())
			}
			d.leave(r.post)
		}
		d.close()
	})
}

// TestDispatcherHeartbeatsWATCH4: a stream that got nothing for the interval gets one, and no
// other.
func TestDispatcherHeartbeatsWATCH4(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 15 * time.Second
		d := newDispatcher(every)
		quiet, busy := newReader(t, d), newReader(t, d)
		time.Sleep(7 * time.Second)
		late := newReader(t, d) // its interval ends later
		for n := range int64(10) {
			busy.publish(n + 1)
			time.Sleep(time.Second)
			if busy.told.Load() != n+1 {
				t.Errorf("busy was told %d of %d", busy.told.Load(), n+1)
			}
			time.Sleep(9 * time.Second)
		}
		// 107 s: quiet at 15, 30, …, 105; late at 22, 37, …, 97.
		for name, c := range map[string]struct {
			r    *reader
			want int64
		}{"quiet": {quiet, 7}, "busy": {busy, 0}, "late": {late, 6}} {
			if got := c.r.beats.Load(); got != c.want {
				t.Errorf("%s got %d heartbeats, want %d", name, got, c.want)
			}
			d.leave(c.r.post)
		}
		d.close()
	})
}

// TestDispatcherLeave: a stream that ends waits for what is under way to it, for a while, and gets
// nothing afterwards; one that fails learns so, once.
func TestDispatcherLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher(time.Second)
		hang := make(chan struct{})
		ends, hangs, fails := newReader(t, d), newReader(t, d), newReader(t, d)
		ends.hang, hangs.hang, fails.err = hang, make(chan struct{}), errors.New("gone")
		fails.publish(1)
		if err := <-fails.post.failed; !errors.Is(err, fails.err) {
			t.Errorf("it failed with %v", err)
		}
		fails.publish(2)
		ends.publish(1)
		hangs.publish(1)
		synctest.Wait()
		time.AfterFunc(leaveAfter/2, func() { close(hang) })
		begun := time.Now()
		d.leave(ends.post)
		if took := time.Since(begun); took != leaveAfter/2 || ends.told.Load() != 1 {
			t.Errorf("left after %v, told %d", took, ends.told.Load())
		}
		begun = time.Now()
		d.leave(hangs.post)
		if took := time.Since(begun); took != leaveAfter {
			t.Errorf("left one that hangs after %v", took)
		}
		d.leave(fails.post)
		close(hangs.hang) // as the end of its call does
		for _, r := range []*reader{ends, hangs, fails} {
			r.publish(9)
		}
		never := newReader(t, d)
		d.leave(never.post)
		held := d.join(never)
		d.news(held)
		d.leave(held) // never released
		time.Sleep(5 * time.Second)
		if ends.told.Load() != 1 || hangs.told.Load() != 1 || fails.told.Load() != 1 {
			t.Errorf("told %d, %d, %d after they left", ends.told.Load(), hangs.told.Load(), fails.told.Load())
		}
		if beats := ends.beats.Load() + hangs.beats.Load() + fails.beats.Load() + never.beats.Load(); beats != 0 {
			t.Errorf("%d heartbeats after they left", beats)
		}
		d.close()
	})
}

// TestNoCompressor: bytes that are encoded once are sent to streams that may have asked for
// different compressors.
func TestNoCompressor(t *testing.T) {
	for _, name := range []string{"gzip", "snappy", "zstd", "deflate"} {
		if grpcencoding.GetCompressor(name) != nil {
			t.Errorf("%s is registered", name)
		}
	}
}
