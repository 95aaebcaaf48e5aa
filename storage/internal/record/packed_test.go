package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage/internal/record"
)

// drawPacked draws receipts as a run has them, in the order of their prefixes: with ids that have
// something in common, or not, gaps in runSeq, as an import leaves them, and times of all sizes.
func drawPacked(t *rapid.T, most int) []record.PackedReceipt {
	n := rapid.IntRange(1, most).Draw(t, "receipts")
	seed := rapid.Uint64().Draw(t, "seed")
	random := func() uint64 {
		seed = seed*6364136223846793005 + 1442695040888963407
		return seed ^ seed>>29
	}
	same := rapid.Uint64().Draw(t, "same bits of ids")
	gap := rapid.SampledFrom([]uint64{1, 2, 1 << 20, 1 << 53}).Draw(t, "gap")
	later := rapid.SampledFrom([]uint64{1, 2, 1 << 33, 1 << 45}).Draw(t, "later")
	imported := rapid.Bool().Draw(t, "imported")
	rs := make([]record.PackedReceipt, n)
	seq, at := random()>>20, int64(random()>>3)
	for i := range rs {
		r := &rs[i]
		binary.BigEndian.PutUint64(r.Prefix[:], random())
		binary.BigEndian.PutUint64(r.Prefix[8:], random())
		binary.BigEndian.PutUint64(r.EventID[:], random()|same)
		binary.BigEndian.PutUint64(r.EventID[8:], random()|same<<3)
		binary.BigEndian.PutUint64(r.Content[:], random())
		if imported {
			binary.BigEndian.PutUint64(r.Imported[:], random())
		}
		r.RunSeq, r.PersistedAt = seq, at
		seq, at = seq+1+random()%gap, at+int64(random()%later)
	}
	slices.SortFunc(rs, func(x, y record.PackedReceipt) int { return bytes.Compare(x.Prefix[:], y.Prefix[:]) })
	return rs
}

// TestPackedReceiptsReadBackLIFE9: a row gives back all receipts that it was made of, each by its
// prefix, and none for another prefix.
func TestPackedReceiptsReadBackLIFE9(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rs := drawPacked(t, rapid.SampledFrom([]int{3, 40, record.MaxPacked}).Draw(t, "most"))
		row := record.AppendPacked([]byte("before"), rs)[len("before"):]
		p, err := record.ParsePacked(row)
		if err != nil {
			t.Fatal(err)
		}
		all, err := p.All(nil)
		if err != nil || !slices.Equal(all, rs) || p.Len() != len(rs) || p.Last() != rs[len(rs)-1].Prefix {
			t.Fatalf("%v: %d receipts\n%+v\nread back as\n%+v", err, p.Len(), rs, all)
		}
		for range 20 {
			i := rapid.IntRange(0, len(rs)-1).Draw(t, "one")
			if got, ok, err := p.Find(rs[i].Prefix); got != rs[i].Receipt || !ok || err != nil {
				t.Fatalf("%+v is found as %+v, %t, %v", rs[i], got, ok, err)
			}
			other := rs[i].Prefix
			other[rapid.IntRange(0, 15).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			isThere := slices.ContainsFunc(rs, func(r record.PackedReceipt) bool { return r.Prefix == other })
			if _, ok, err := p.Find(other); ok != isThere || err != nil {
				t.Fatalf("%x is found: %t, %v", other, ok, err)
			}
		}
	})
}

// TestPackedReceiptsMergeLIFE9: merging keeps all receipts in order. Of those whose keys begin with
// the same 16 bytes, which takes a producer 2^64 tries, one is packed, and the others are told
// apart by their whole keys, in rows of their own.
func TestPackedReceiptsMergeLIFE9(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rs := drawPacked(t, 60)
		var packed []record.PackedReceipt
		var plain, want []record.KeyedReceipt
		for _, r := range rs {
			if rapid.Bool().Draw(t, "packed") {
				packed = append(packed, r)
			} else {
				plain = append(plain, record.KeyedReceipt{Key: record.KeyHash(append(r.Prefix[:], make([]byte, 16)...)), Receipt: r.Receipt})
				want = append(want, plain[len(plain)-1])
			}
			if rapid.IntRange(0, 5).Draw(t, "collision") == 0 {
				c := record.KeyedReceipt{Key: record.KeyHash(append(r.Prefix[:], bytes.Repeat([]byte{9}, 16)...))}
				plain = append(plain, c)
			}
		}
		var taken []record.KeyedReceipt
		got, err := record.Merge(nil, packed, plain, func(r *record.KeyedReceipt) error {
			taken = append(taken, *r)
			return nil
		})
		if err != nil || !slices.Equal(got, rs) || !slices.Equal(taken, want) {
			t.Fatalf("%v: %d merged of %d, %d taken of %d", err, len(got), len(rs), len(taken), len(want))
		}
	})
}

// TestNextPrefixLIFE9: the prefix behind another one is the next number.
func TestNextPrefixLIFE9(t *testing.T) {
	t.Parallel()
	last := record.KeyPrefix(bytes.Repeat([]byte{0xff}, 16))
	for _, c := range []struct{ of, want record.KeyPrefix }{
		{record.KeyPrefix{}, record.KeyPrefix{15: 1}},
		{record.KeyPrefix{15: 0xff}, record.KeyPrefix{14: 1}},
		{record.KeyPrefix(append(make([]byte, 8), last[:8]...)), record.KeyPrefix{7: 1}},
		{last, record.KeyPrefix{}},
	} {
		if got := c.of.Next(); got != c.want {
			t.Errorf("behind %x is %x, want %x", c.of, got, c.want)
		}
	}
}

// FuzzParsePacked: whatever a row of packed receipts says, it is read or refused as damaged. What
// is read in full gives the same receipts when it is written again.
func FuzzParsePacked(f *testing.F) {
	f.Fuzz(func(t *testing.T, row []byte) {
		p, err := record.ParsePacked(row)
		if err != nil {
			if !errors.Is(err, record.ErrRow) {
				t.Fatal(err)
			}
			return
		}
		for _, i := range []int{0, p.Len() / 2, p.Len() - 1} {
			if _, _, err := p.Find(p.Prefix(i)); err != nil && !errors.Is(err, record.ErrRow) {
				t.Fatal(err)
			}
		}
		all, err := p.All(nil)
		if err != nil {
			if !errors.Is(err, record.ErrRow) {
				t.Fatal(err)
			}
			return
		}
		for i := range all {
			if got, ok, err := p.Find(all[i].Prefix); got != all[i].Receipt || !ok || err != nil {
				t.Fatalf("%+v is found as %+v, %t, %v", all[i], got, ok, err)
			}
		}
		p, err = record.ParsePacked(record.AppendPacked(nil, all))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := p.All(nil); err != nil || !slices.Equal(again, all) {
			t.Fatalf("%v: %+v\nwritten again\n%+v", err, all, again)
		}
	})
}
