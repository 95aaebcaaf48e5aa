package record

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestFencesAfterQUE8: clusters that go on from backups of each other, or from one backup, are far
// apart in their fences. All are below 2^53, odd numbers are those of no lease, and a run that was
// never requested has none.
func TestFencesAfterQUE8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := func() []byte {
			return binary.BigEndian.AppendUint32(nil, rapid.Uint32().Draw(t, "random"))
		}
		a := Applied{}
		for range rapid.IntRange(1, 20).Draw(t, "backups") {
			id, other := random(), random()
			next := Applied{FencesAbove: FencesAfter(a.FencesAbove, id)}
			if sibling := FencesAfter(a.FencesAbove, other); id[0] != other[0] && sibling == next.FencesAbove {
				t.Fatalf("ids %x and %x have fences above %d", id, other, sibling)
			}
			if next.FencesAbove < a.FencesAbove+1<<20 || next.FencesAbove >= 1<<53 || next.FirstFence()%2 == 0 {
				t.Fatalf("fences above %d, and then above %d", a.FencesAbove, next.FencesAbove)
			}
			if old := next.Fence(a.FirstFence() + 1); old != next.FirstFence() || next.Fence(old+1) != old+1 || next.Fence(0) != 0 {
				t.Fatalf("a fence of before counts as %d", old)
			}
			a = next
		}
	})
}
