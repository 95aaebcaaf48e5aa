package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"runlog/storage"
)

// TestEveryCommandOnce proves APP-2, APP-9 and APP-10 on drawn loads: every admitted command is in
// exactly one proposal and is answered once, with its own outcome or with the error of its
// proposal; a refused one is in none; the commands of one caller keep their order; the bounds hold.
func TestEveryCommandOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, everyCommandOnce) })
}

func everyCommandOnce(t *rapid.T) {
	broken := errors.New("broken")
	opts := Options{
		Cluster:       cluster,
		ProposalBytes: rapid.SampledFrom([]int{1, 200, 2000}).Draw(t, "proposal bytes"),
		Outstanding:   rapid.IntRange(1, 3).Draw(t, "outstanding"),
		QueueBytes:    rapid.SampledFrom([]int64{100, 1000, 100000}).Draw(t, "queue bytes"),
	}
	delays := rapid.SliceOfN(rapid.IntRange(0, 5), 8, 8).Draw(t, "delays")
	g := &group{delay: func(nth int) duration { return duration(delays[nth%8]) * time.Millisecond }}
	failing := rapid.SliceOfN(rapid.IntRange(0, 5), 8, 8).Draw(t, "failing")
	opts.Propose = func(data []byte, done func([]storage.Outcome, error)) error {
		switch failing[len(g.seen())%8] {
		case 0:
			g.mu.Lock()
			defer g.mu.Unlock()
			g.proposals, g.sizes = append(g.proposals, decode(data)), append(g.sizes, len(data))
			return broken
		case 1:
			return g.propose(data, func([]storage.Outcome, error) { done(nil, broken) })
		}
		return g.propose(data, done)
	}
	b := New(opts)
	const each = 6
	callers := rapid.IntRange(1, 6).Draw(t, "callers")
	pauses := rapid.SliceOfN(rapid.IntRange(0, 4), callers*each, callers*each).Draw(t, "pauses")
	sizes := rapid.SliceOfN(rapid.IntRange(0, 150), callers*each, callers*each).Draw(t, "sizes")
	patience := rapid.SliceOfN(rapid.IntRange(1, 30), callers*each, callers*each).Draw(t, "patience")
	told := make([]error, callers*each)
	var done sync.WaitGroup
	for c := range callers {
		done.Go(func() {
			for k := range each {
				n := c*each + k
				time.Sleep(duration(pauses[n]) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), duration(patience[n])*time.Millisecond)
				o, err := submit(ctx, b, command(n, sizes[n]))
				cancel()
				if err == nil && o.LastSeq != uint64(n) {
					err = fmt.Errorf("was told the outcome of %d", o.LastSeq)
				}
				told[n] = err
			}
		})
	}
	done.Wait()
	b.Close()
	if b.mu.bytes != 0 {
		t.Errorf("%d bytes are still counted", b.mu.bytes)
	}
	checkProposals(t, g, opts, told, broken, each)
}

func checkProposals(t *rapid.T, g *group, opts Options, told []error, broken error, each int) {
	times := make([]int, len(told))
	last := map[int]int{}
	for i, numbers := range g.seen() {
		if len(numbers) == 0 {
			t.Errorf("proposal %d is empty", i)
		}
		if len(numbers) > 1 && g.sizes[i] > opts.ProposalBytes+37 {
			t.Errorf("proposal %d of %d commands has %d bytes", i, len(numbers), g.sizes[i])
		}
		for _, n := range numbers {
			times[n]++
			if before, ok := last[n/each]; ok && before > n {
				t.Errorf("command %d came after %d", n, before)
			}
			last[n/each] = n
		}
	}
	for n, err := range told {
		want := 1
		switch {
		case err == nil, errors.Is(err, broken), errors.Is(err, ErrAbandoned):
		case errors.Is(err, ErrOverloaded):
			want = 0
		default:
			t.Errorf("command %d: %v", n, err)
		}
		if times[n] != want {
			t.Errorf("command %d, told %v, was proposed %d times", n, err, times[n])
		}
	}
}
