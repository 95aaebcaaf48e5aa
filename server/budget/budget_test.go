package budget

import (
	"context"
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
)

// TestCeilingsAPP9: whatever is drawn and released, the budget is never above its limit, a class
// never draws above its ceiling, and a refusal is OVERLOADED with a delay (SEC-6). What is kept for
// appends is there whatever the others have drawn. In the end nothing is in use.
func TestCeilingsAPP9(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const total = 4000
		b := New(total)
		var grants []Grant
		held := func() (sum int64) {
			for i := range grants {
				sum += grants[i].bytes
			}
			return sum
		}
		size := rapid.Int64Range(0, total+total/2)
		class := rapid.Map(rapid.IntRange(0, classes-1), func(i int) Class { return Class(i) })
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				c, n, before := class.Draw(t, "class"), size.Draw(t, "bytes"), held()
				g, err := b.Acquire(c, n)
				fits := min(n, b.ceilings[c]) <= b.ceilings[c]-before || n == 0
				if (err == nil) != fits {
					t.Fatalf("%d bytes of class %d while %d are in use: %v", n, c, before, err)
				}
				var refusal *contract.Error
				if err != nil && (!errors.As(err, &refusal) || refusal.Reason != contract.ReasonOverloaded || refusal.RetryAfter == 0) {
					t.Fatal(err)
				}
				grants = append(grants, g)
			},
			"grow": func(t *rapid.T) {
				if len(grants) == 0 {
					return
				}
				g := &grants[rapid.IntRange(0, len(grants)-1).Draw(t, "grant")]
				had := g.bytes
				if err := g.Grow(size.Draw(t, "bytes")); err != nil && g.bytes != had {
					t.Fatalf("a refused grant of %d bytes has %d", had, g.bytes)
				}
			},
			"release": func(t *rapid.T) {
				if len(grants) > 0 {
					g := &grants[rapid.IntRange(0, len(grants)-1).Draw(t, "grant")]
					g.Release()
					g.Release()
				}
			},
			"": func(t *rapid.T) {
				if used := b.Used(); used != held() || used > total {
					t.Fatalf("%d bytes are in use, the grants have %d of %d", used, held(), total)
				}
			},
		})
		for i := range grants {
			grants[i].Release()
		}
		for c := range names {
			if b.Used() != 0 || b.drawn[c].Load() != 0 {
				t.Fatalf("%d bytes are in use in the end, %d of %s", b.Used(), b.drawn[c].Load(), names[c])
			}
		}
	})
}

// TestKeptForAppendsSEC6: when everything else has drawn what it can, half of the budget is there
// for small appends, and a quarter for those that have arrived.
func TestKeptForAppendsSEC6(t *testing.T) {
	t.Parallel()
	b := New(4000)
	fill := func(c Class) (sum int64) {
		for {
			if _, err := b.Acquire(c, 10); err != nil {
				return sum
			}
			sum += 10
		}
	}
	for c, want := range [classes]int64{2000, 1000, 1000} {
		if got := fill(Class(c)); got != want {
			t.Errorf("class %s drew %d bytes, want %d", names[c], got, want)
		}
	}
}

// TestConcurrentDraws: draws of many goroutines never exceed the limit.
func TestConcurrentDraws(t *testing.T) {
	t.Parallel()
	b := New(1000)
	var done sync.WaitGroup
	for i := range 8 {
		done.Go(func() {
			for n := range 2000 {
				g, _ := b.Acquire(Class((i+n)%classes), int64(n%300))
				if used := b.Used(); used > 1000 {
					t.Errorf("%d bytes are in use", used)
				}
				g.Release()
			}
		})
	}
	done.Wait()
	if b.Used() != 0 {
		t.Errorf("%d bytes stay in use", b.Used())
	}
}

// TestDrawAllocatesNothing: a draw on the path of an append costs no allocation.
func TestDrawAllocatesNothing(t *testing.T) {
	b := New(1 << 20)
	if n := testing.AllocsPerRun(1000, func() {
		g, err := b.Acquire(Append, 100)
		if err != nil {
			t.Fatal(err)
		}
		g.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTurnsSEC6: as many callers read at a time as there are turns. Others wait, and one that is
// cancelled waits no more.
func TestTurnsSEC6(t *testing.T) {
	t.Parallel()
	b := New(1000)
	var ends []func()
	for range cap(b.turns) {
		done, err := b.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 2)
	go func() { _, err := b.Turn(cancelled); waiting <- err }()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("a turn too many: %v", err)
	}
	go func() { _, err := b.Turn(t.Context()); waiting <- err }()
	ends[0]()
	if err := <-waiting; err != nil {
		t.Errorf("a turn that is free again: %v", err)
	}
	if _, err := b.Turn(cancelled); err == nil {
		t.Error("a cancelled caller has a turn")
	}
}
