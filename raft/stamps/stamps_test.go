package stamps

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const limit = time.Hour

// side is one voter: its clock's offset from real time, and the last stamp that it has applied.
type side struct {
	judge  *Judge
	offset time.Duration
	last   int64
}

func newSide(offset time.Duration) *side {
	s := &side{offset: offset}
	s.judge = New(Options{Limit: limit, Clock: s.clock, Last: func() int64 { return s.last }})
	return s
}

func (s *side) clock() time.Time { return time.Now().Add(s.offset) }

// ahead returns clocks by their offsets from real time.
func ahead(offsets ...time.Duration) []int64 {
	var clocks []int64
	for _, o := range offsets {
		clocks = append(clocks, time.Now().Add(o).UnixNano())
	}
	return clocks
}

// TestAcceptAPP5 lists what a follower takes, by its clock, the last stamp and the new one, all
// relative to real time.
func TestAcceptAPP5(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name               string
			clock, last, stamp time.Duration
			takes              bool
		}{
			{"all right", 0, -time.Second, 0, true},
			{"behind by any time: apply stamps later", 0, 0, -1000 * time.Hour, true},
			{"ahead within the limit", 0, 0, limit, true},
			{"ahead beyond the limit", 0, 0, limit + 1, false},
			{"far ahead", 0, 0, 10 * time.Hour, false},
			{"far ahead of a cluster that was idle for a day", 0, -24 * time.Hour, 10 * time.Hour, false},
			{"step by step: the last stamp is at the limit", 0, limit, limit + time.Minute, false},
			{"own clock lost, as in a reboot", -1000 * time.Hour, -time.Second, 0, true},
			{"own clock lost, the leader's clock far ahead", -1000 * time.Hour, 0, 2 * time.Hour, false},
			{"own clock far ahead", 10 * time.Hour, 0, 0, true},
			{"time was moved far ahead before, the leader is right", 0, 10 * time.Hour, 0, true},
			{"time was moved far ahead before, the leader is further ahead", 0, 10 * time.Hour, 12 * time.Hour, false},
		} {
			s := newSide(c.clock)
			s.last = time.Now().Add(c.last).UnixNano()
			err := s.judge.Accept(time.Now().Add(c.stamp).UnixNano())
			if takes := err == nil; takes != c.takes || !takes && !errors.Is(err, ErrAhead) {
				t.Errorf("%s: %v, want taken: %v", c.name, err, c.takes)
			}
			if want := map[bool]uint64{true: 0, false: 1}[c.takes]; s.judge.Refused() != want {
				t.Errorf("%s: counted %d refusals, want %d", c.name, s.judge.Refused(), want)
			}
		}
	})
}

// TestAcceptAfterIdleAPP5: a node that has lost its clock counts the time since the last stamp, so
// that it can follow a cluster that was idle for longer than the limit.
func TestAcceptAfterIdleAPP5(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSide(-1000 * time.Hour)
		s.last = time.Now().UnixNano()
		if err := s.judge.Accept(s.last + 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		if err := s.judge.Accept(time.Now().UnixNano()); err != nil {
			t.Error(err)
		}
		if err := s.judge.Accept(time.Now().Add(limit + time.Second).UnixNano()); err == nil {
			t.Error("takes a stamp from far ahead")
		}
	})
}

// TestAdmitAPP5 lists which leaders propose, by the offsets of the others' clocks.
func TestAdmitAPP5(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const far = 3 * time.Hour
		for _, c := range []struct {
			name    string
			voters  int
			answers []time.Duration
			admits  bool
		}{
			{"alone", 1, nil, true},
			{"all agree", 3, []time.Duration{0, time.Second}, true},
			{"ahead of one of two", 3, []time.Duration{-far, 0}, true},
			{"ahead of both", 3, []time.Duration{-far, -far}, false},
			{"ahead of the only one that answers", 3, []time.Duration{-far}, false},
			{"ahead of the other one of two", 2, []time.Duration{-far}, false},
			{"behind both", 3, []time.Duration{far, far}, true},
			{"ahead of two of four", 5, []time.Duration{-far, -far, 0, 0}, true},
			{"ahead of three of four", 5, []time.Duration{-far, -far, -far, 0}, false},
		} {
			s := newSide(0)
			if err := s.judge.Admit(time.Now().UnixNano()); !errors.Is(err, ErrUnmeasured) {
				t.Errorf("%s: before the others were asked: %v", c.name, err)
			}
			s.judge.Measure(0, nil) // it does not know the voters yet
			s.judge.Measure(3, nil) // no answer
			if err := s.judge.Admit(time.Now().UnixNano()); !errors.Is(err, ErrUnmeasured) || s.judge.Measured() {
				t.Errorf("%s: without an answer: %v", c.name, err)
			}
			<-s.judge.Asked()
			s.judge.Measure(c.voters, ahead(c.answers...))
			err := s.judge.Admit(s.clock().UnixNano())
			if admits := err == nil; admits != c.admits || (s.judge.Ahead() == 0) != c.admits || !admits && !errors.Is(err, ErrAhead) {
				t.Errorf("%s: %v, ahead by %v; want admitted: %v", c.name, err, s.judge.Ahead(), c.admits)
			}
			select {
			case <-s.judge.Asked():
				if c.admits {
					t.Errorf("%s: asks for the clocks", c.name)
				}
			default:
				if !c.admits {
					t.Errorf("%s: does not ask for the clocks", c.name)
				}
			}
		}
	})
}

// TestJumpIsNotAdmittedAPP5: a leader whose clock jumps after it was compared proposes nothing,
// whenever it notices the jump. If its clock was slow and jumps to the right time, it asks
// the others again first.
func TestJumpIsNotAdmittedAPP5(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSide(0)
		s.judge.Measure(3, ahead(0, 0))
		time.Sleep(time.Minute)
		if err := s.judge.Admit(s.clock().UnixNano()); err != nil {
			t.Error(err)
		}
		s.offset = 2 * time.Hour
		if err := s.judge.Admit(s.clock().UnixNano()); !errors.Is(err, ErrAhead) {
			t.Errorf("after a jump: %v", err)
		}
		if s.judge.Ahead() < limit || s.judge.AheadBy(time.Now().UnixNano()) > 0 {
			t.Error("a voter with a right clock should lead, and not this one")
		}
		s.offset = 0
		s.judge.Measure(3, nil) // no answer
		if err := s.judge.Admit(s.clock().UnixNano()); err != nil {
			t.Errorf("after the clock was repaired: %v", err)
		}
		slow := newSide(-5 * time.Hour)
		slow.judge.Measure(3, ahead(0, 0))
		slow.offset = 0
		if err := slow.judge.Admit(slow.clock().UnixNano()); !errors.Is(err, ErrUnmeasured) {
			t.Errorf("right after a jump: %v", err)
		}
		slow.judge.Measure(3, ahead(0, 0))
		if err := slow.judge.Admit(slow.clock().UnixNano()); err != nil {
			t.Errorf("after a slow clock was repaired: %v", err)
		}
	})
}

// TestNoLimitAPP5: without a limit every stamp is taken, by leaders and followers.
func TestNoLimitAPP5(t *testing.T) {
	t.Parallel()
	j := New(Options{})
	j.Measure(3, ahead(-1000*time.Hour, -1000*time.Hour))
	stamp := time.Now().Add(1000 * time.Hour).UnixNano()
	if err := errors.Join(j.Accept(stamp), j.Admit(stamp)); err != nil {
		t.Error(err)
	}
}

// TestMajorityTakesWhatALeaderAdmitsAPP5: whatever the clocks are, a majority takes each stamp that
// a leader admits. If the leader must not lead, there is a voter to which it passes the leadership
// on, and a majority takes the stamps of each such voter.
func TestMajorityTakesWhatALeaderAdmitsAPP5(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		offset := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Map(rapid.Int64Range(-int64(4*limit), int64(4*limit)), func(n int64) time.Duration { return time.Duration(n) }))
		voters := rapid.IntRange(2, 7).Draw(r, "voters")
		last := time.Now().Add(offset.Draw(r, "last")).UnixNano()
		sides := make([]*side, voters)
		for i := range sides {
			sides[i] = newSide(offset.Draw(r, "offset"))
			sides[i].last = last
		}
		leader := sides[0]
		var offsets []time.Duration // of real time
		for _, s := range sides[1:] {
			off := time.Duration(rapid.Int64Range(-int64(time.Minute), int64(time.Minute)).Draw(r, "error"))
			offsets = append(offsets, s.offset+off)
		}
		leader.judge.Measure(voters, ahead(offsets...))
		taken := func(stamp int64, by *side) (n int) {
			for _, s := range sides {
				if s == by || s.judge.Accept(stamp) == nil {
					n++
				}
			}
			return n
		}
		if stamp := leader.clock().UnixNano(); leader.judge.Admit(stamp) == nil && taken(stamp, leader) <= voters/2 {
			r.Fatalf("%d of %d take what the leader admits", taken(stamp, leader), voters)
		}
		fit, passes := leader.judge.Ahead() == 0, false
		for i, s := range sides[1:] {
			if fit || leader.judge.AheadBy(ahead(offsets[i])[0]) > 0 {
				continue
			}
			passes = true
			if stamp := s.clock().UnixNano(); taken(stamp, s) <= voters/2 {
				r.Fatalf("%d of %d take the stamps of a voter that may lead", taken(stamp, s), voters)
			}
		}
		if !fit && !passes {
			r.Fatal("no voter may lead")
		}
	})
}

// TestRightClockBoundsTimeAPP5: a node with a right clock never takes a stamp beyond the limit, in
// whatever steps a leader tries.
func TestRightClockBoundsTimeAPP5(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := newSide(0)
		s.last = time.Now().UnixNano()
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			stamp := s.last + rapid.Int64Range(0, int64(2*limit)).Draw(r, "step")
			if s.judge.Accept(stamp) == nil {
				s.last = stamp
			}
			if ahead := time.Until(time.Unix(0, s.last)); ahead > limit {
				r.Fatalf("time is ahead by %v", ahead)
			}
		}
	})
}
