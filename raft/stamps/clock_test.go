package stamps

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// slewedGroup is a cluster without limit, whose clocks are set by anyone.
type slewedGroup struct {
	elapsed time.Duration // by which all clocks have advanced
	offsets []time.Duration
	judges  []*Judge
	leader  int
	last    int64 // applied
}

var slewedStart = time.Date(2026, 2, 11, 0, 0, 0, 0, time.UTC)

func newSlewedGroup(offsets ...time.Duration) *slewedGroup {
	g := &slewedGroup{offsets: offsets}
	for i := range offsets {
		g.judges = append(g.judges, New(Options{
			Clock:     func() time.Time { return slewedStart.Add(g.elapsed + g.offsets[i]) },
			Monotonic: func() time.Time { return slewedStart.Add(g.elapsed) },
			Last:      func() int64 { return g.last },
		}))
	}
	return g
}

// propose has the leader make a stamp, which the others get.
func (g *slewedGroup) propose() int64 {
	stamp := g.judges[g.leader].Next()
	for i, j := range g.judges {
		if i != g.leader {
			j.Follow(stamp)
		}
	}
	g.last = max(g.last+1, stamp)
	return g.last
}

// TestSlewedAPP5: between any two stamps of a cluster, time advances as much as has elapsed, give
// or take a tenth, whatever happens to the clocks, and whichever nodes lead.
func TestSlewedAPP5(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		off := rapid.Map(rapid.Int64Range(-int64(1000*time.Hour), int64(1000*time.Hour)), func(n int64) time.Duration { return time.Duration(n) })
		g := newSlewedGroup(rapid.SliceOfN(off, 1, 5).Draw(r, "offsets")...)
		g.leader = rapid.IntRange(0, len(g.offsets)-1).Draw(r, "leader")
		last := g.propose()
		if wall := slewedStart.Add(g.offsets[g.leader]).UnixNano(); last != wall {
			r.Fatalf("the first stamp is %v from the leader's clock", time.Duration(last-wall))
		}
		for range rapid.IntRange(1, 50).Draw(r, "steps") {
			elapsed := time.Duration(rapid.OneOf(rapid.Int64Range(100, int64(time.Second)), rapid.Int64Range(100, int64(24*time.Hour))).Draw(r, "elapsed"))
			g.elapsed += elapsed
			switch rapid.IntRange(0, 2).Draw(r, "step") {
			case 0:
				g.offsets[rapid.IntRange(0, len(g.offsets)-1).Draw(r, "node")] = off.Draw(r, "jump")
			case 1:
				g.leader = rapid.IntRange(0, len(g.offsets)-1).Draw(r, "leader")
				g.judges[g.leader].Lead()
			}
			now := g.judges[g.leader].Now().UnixNano()
			next := g.propose()
			if gap := time.Duration(next - last); gap < elapsed-elapsed/slewShare || gap > elapsed+elapsed/slewShare+1 {
				r.Fatalf("stamps advance by %v while %v elapse", gap, elapsed)
			}
			if now > next {
				r.Fatalf("the next stamp was announced as %v later", time.Duration(now-next))
			}
			last = next
		}
	})
}

// TestCatchesUpAPP5: stamps agree with the leader's clock after ten times what they differ by, in
// both directions, if the leader asks once a second.
func TestCatchesUpAPP5(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Millisecond, 10 * time.Minute, -10 * time.Minute} {
		g := newSlewedGroup(0)
		g.propose()
		g.offsets[0] = jump
		began := g.elapsed
		for g.propose() != g.judges[0].opts.Clock().UnixNano() {
			if g.elapsed += time.Second; g.elapsed-began > slewShare*jump.Abs()+time.Second {
				t.Fatalf("after %v, stamps do not agree with a clock that was moved by %v", g.elapsed-began, jump)
			}
		}
	}
}

// TestFollowAPP5: a node that starts takes the first stamp that it follows. Later ones that have
// waited on their way do not take its time back. A node that leads next continues from the last
// stamp, if it has not followed it.
func TestFollowAPP5(t *testing.T) {
	t.Parallel()
	g := newSlewedGroup(time.Hour)
	j, second := g.judges[0], int64(time.Second)
	at := func(what string, want int64) {
		t.Helper()
		if got := j.Now().Sub(slewedStart); got != time.Duration(want) {
			t.Errorf("%s: it is %v, want %v", what, got, time.Duration(want))
		}
	}
	at("at its start", int64(time.Hour))
	g.offsets[0] = -time.Hour
	at("after its clock was repaired", int64(-time.Hour))
	j.Follow(slewedStart.UnixNano())
	at("after the first stamp", 0)
	g.elapsed = 10 * time.Second
	j.Follow(slewedStart.UnixNano())
	at("after a stamp that is late by 10 s", 9*second)
	j.Follow(slewedStart.UnixNano() + 10*second)
	at("after the next one", 10*second)
	g.last = slewedStart.UnixNano() + 60*second
	j.Lead()
	at("as the leader", 60*second)
	g.elapsed += time.Second
	at("a second later", 61*second-second/slewShare)
}
