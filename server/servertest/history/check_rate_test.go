package history

import "testing"

// TestRateAPP5 shows the verdicts on how stamps advance while one leader stores events.
func TestRateAPP5(t *testing.T) {
	const second = int64(1e9)
	change := func(at int64) Act { return Act{Kind: Interrupted, Call: at * second, Return: at * second} }
	// stored is an append that takes a tenth of a second, and its stamp, both in tenths.
	stored := func(call, stamp int64) Op {
		return Op{Call: call * second / 10, Return: (call + 1) * second / 10, Appends: []Append{{
			Outcome: Outcome{Status: Acknowledged}, Results: []Result{{PersistedAt: stamp * second / 10}},
		}}}
	}
	again := stored(300, 5000)
	again.Appends[0].Results[0].Idempotent = true
	lost := stored(300, 5000)
	lost.Return = 0
	for _, tt := range []struct {
		name string
		ok   bool
		acts []Act
		ops  []Op
	}{
		{"as time elapses", true, []Act{change(1)}, []Op{stored(100, 1000), stored(200, 1100), stored(300, 1200)}},
		{"a tenth faster", true, []Act{change(1)}, []Op{stored(100, 1000), stored(200, 1110)}},
		{"a tenth slower", true, []Act{change(1)}, []Op{stored(100, 1000), stored(200, 1090)}},
		{"more than a tenth faster", false, []Act{change(1)}, []Op{stored(100, 1000), stored(200, 1112)}},
		{"more than a tenth slower", false, []Act{change(1)}, []Op{stored(100, 1000), stored(200, 1089)}},
		{"too fast for a while", false, []Act{change(1)}, []Op{stored(100, 1000), stored(200, 1095), stored(300, 1210)}},
		{"too slow for a while", false, []Act{change(1)}, []Op{stored(100, 1000), stored(200, 1105), stored(300, 1190)}},
		{"within a call of ten seconds", true, []Act{change(1)}, []Op{
			{Call: 10 * second, Return: 20 * second, Appends: stored(100, 1000).Appends}, stored(200, 1000)}},
		{"before the first leader is known", true, []Act{change(100)}, []Op{stored(100, 1000), stored(200, 5000)}},
		{"another leader", true, []Act{change(1), change(15)}, []Op{stored(100, 1000), stored(200, 5000)}},
		{"a change within a call", true, []Act{change(1), change(15)}, []Op{stored(100, 1000),
			{Call: 14 * second, Return: 16 * second, Appends: stored(140, 5000).Appends}, stored(170, 7000)}},
		{"a duplicate", true, []Act{change(1)}, []Op{stored(100, 1000), again}},
		{"without an answer", true, []Act{change(1)}, []Op{stored(100, 1000), lost}},
	} {
		r := &Report{Counts: map[string]int{}}
		if CheckRate(&History{Acts: tt.acts, Ops: tt.ops}, r); r.Has(Paced) == tt.ok {
			t.Errorf("%s: want ok %t: %s", tt.name, tt.ok, r)
		}
	}
}
