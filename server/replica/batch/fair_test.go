package batch

import (
	"testing"

	"pgregory.net/rapid"
)

// flood has two tenants offer commands for some proposals, and returns how many bytes of the first
// one were proposed. In each round the first one offers half of what a proposal holds, and the
// other one ten times as much, or nothing.
func flood(t *testing.T, sizes [2]int, busy bool) (proposed int64) {
	t.Helper()
	const rounds, room, queueBytes = 200, 64 << 10, 16 * (64 << 10)
	var l lines
	held := int64(0)
	offer := func(name string, size int64) {
		for offered := int64(0); offered+size <= room/2; offered += size {
			if held+size <= queueBytes && !l.over(name, size, queueBytes-held) {
				l.add(name, &call{size: size})
				held += size
			}
		}
	}
	for range rounds {
		for range 10 {
			if busy {
				offer("greedy", int64(sizes[1]))
			}
		}
		offer("modest", int64(sizes[0]))
		calls, bytes := l.cut(room)
		for _, c := range calls {
			if c.line.name == "modest" {
				proposed += c.size
			}
		}
		l.release(calls)
		held -= bytes
	}
	return proposed
}

// TestFairSEC6: a tenant that offers ten times its share leaves another at least 80 % of what that
// gets alone, whatever the sizes of their commands.
func TestFairSEC6(t *testing.T) {
	t.Parallel()
	for _, sizes := range [][2]int{{1000, 1000}, {100, 32000}, {32000, 100}, {1000, 200}, {5000, 32768}} {
		alone, beside := flood(t, sizes, false), flood(t, sizes, true)
		if beside*10 < alone*8 || alone == 0 {
			t.Errorf("commands of %d and %d bytes: %d bytes beside the other, %d alone", sizes[0], sizes[1], beside, alone)
		}
	}
}

// TestLinesSEC6 compares lines with queues: every command leaves once, and those of a line in their
// order; a proposal is as large as it may be; no line waits forever.
func TestLinesSEC6(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l lines
		room := rapid.Int64Range(1, 1000).Draw(t, "room")
		names := []string{"a", "b", "c"}
		model := map[string][]*call{}
		left := 0
		take := func() {
			calls, bytes := l.cut(room)
			sum := int64(0)
			for _, c := range calls {
				if name := c.line.name; len(model[name]) == 0 || model[name][0] != c {
					t.Fatalf("a command of line %s is out of order", name)
				}
				model[c.line.name] = model[c.line.name][1:]
				sum += c.size
			}
			if left -= len(calls); sum != bytes || len(calls) > 1 && bytes > room || len(calls) == 0 {
				t.Fatalf("%d commands of %d bytes, said to be %d, room %d", len(calls), sum, bytes, room)
			}
			l.release(calls)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if left > 0 && rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				take()
				continue
			}
			name := rapid.SampledFrom(names).Draw(t, "line")
			c := &call{size: rapid.Int64Range(1, 2000).Draw(t, "size")}
			l.add(name, c)
			model[name] = append(model[name], c)
			left++
		}
		for left > 0 {
			take()
		}
		for name, x := range l.byName {
			if x.reserved != 0 || x.credit != 0 || len(x.queue) > 0 {
				t.Errorf("line %s keeps %+v", name, x)
			}
		}
		if len(l.waiting) > 0 {
			t.Errorf("%d lines wait for nothing", len(l.waiting))
		}
	})
}
