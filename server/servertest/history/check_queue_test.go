package history

import "testing"

// TestQueues shows the verdicts on appends that went through a queue, and overlap.
func TestQueues(t *testing.T) {
	through := func(queue string, op Op) Op {
		op.Appends[0].Queue = queue
		return op
	}
	for _, tt := range []struct {
		name string
		want Invariant // empty: all is well
		ops  []Op
		keys []string
	}{
		{"in order", "", []Op{through("q", stored(sent(1, 9, -1, "a"), 1)), through("q", stored(sent(2, 9, -1, "b"), 2))}, []string{"a", "b"}},
		{"the later call first", Queued, []Op{through("q", stored(sent(1, 9, -1, "a"), 2)), through("q", stored(sent(2, 9, -1, "b"), 1))}, []string{"b", "a"}},
		{"the later call between", Queued, []Op{
			through("q", stored(sent(1, 9, -1, "a"), 1)), through("q", stored(sent(2, 9, -1, "b"), 3)), through("q", stored(sent(3, 9, -1, "c"), 2)),
		}, []string{"a", "c", "b"}},
		{"at the same time", "", []Op{through("q", stored(sent(1, 9, -1, "a"), 2)), through("q", stored(sent(1, 9, -1, "b"), 1))}, []string{"b", "a"}},
		{"of two queues", "", []Op{through("q", stored(sent(1, 9, -1, "a"), 2)), through("p", stored(sent(2, 9, -1, "b"), 1))}, []string{"b", "a"}},
		{"without a queue", "", []Op{stored(sent(1, 9, -1, "a"), 2), stored(sent(2, 9, -1, "b"), 1)}, []string{"b", "a"}},
		{"sent by another one too", "", []Op{
			through("q", stored(sent(1, 9, -1, "a"), 2)), through("q", stored(sent(2, 9, -1, "b"), 1)), sent(1, 9, -1, "a"),
		}, []string{"b", "a"}},
	} {
		r, err := story{ops: tt.ops, keys: tt.keys}.check()
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if found := !r.OK(); found != (tt.want != "") || found && !r.Has(tt.want) {
			t.Errorf("%s: want %q: %s", tt.name, tt.want, r)
		}
	}
}
