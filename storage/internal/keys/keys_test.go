package keys_test

import (
	"bytes"
	"cmp"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage/internal/keys"
)

// number draws mostly numbers at which carries and sign bits could go wrong.
func number(t *rapid.T, label string) uint64 {
	if rapid.Bool().Draw(t, label+" odd") {
		return rapid.Uint64().Draw(t, label)
	}
	return rapid.SampledFrom([]uint64{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<63 - 1, 1 << 63, ^uint64(0)}).Draw(t, label)
}

// TestChunkKey proves that chunk keys read back and lie in commit order (D6).
func TestChunkKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := number(t, "position"), number(t, "other position")
		n, m := rapid.Uint32().Draw(t, "chunk"), rapid.Uint32().Draw(t, "other chunk")
		a, b := keys.AppendChunk(nil, p, n), keys.AppendChunk([]byte("kept")[:0], q, m)
		gotP, gotN, ok := keys.ParseChunk(a)
		if !ok || gotP != p || gotN != n {
			t.Fatalf("%x reads as %d, %d, %t", a, gotP, gotN, ok)
		}
		want := cmp.Or(cmp.Compare(p, q), cmp.Compare(n, m))
		if got := bytes.Compare(a, b); got != want {
			t.Fatalf("%x and %x are in order %d, want %d", a, b, got, want)
		}
		if bytes.Compare(a, keys.ChunksEnd) >= 0 {
			t.Fatalf("%x lies behind ChunksEnd", a)
		}
		if _, _, ok := keys.ParseChunk(a[:len(a)-1]); ok {
			t.Fatal("a short key reads")
		}
	})
}

// TestRunKeys proves that the keys of a run lie together, in their order, and within their bounds:
// those of a neighbour, and of another table, do not (D6).
func TestRunKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run := max(1, number(t, "run"))
		other := max(1, number(t, "other run"))
		seq, next := number(t, "seq"), number(t, "other seq")
		hash := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash")

		place := keys.AppendPlace(nil, run, seq)
		if got, want := bytes.Compare(place, keys.AppendPlace(nil, run, next)), cmp.Compare(seq, next); got != want {
			t.Fatalf("places of %d and %d are in order %d", seq, next, got)
		}
		receipt := keys.AppendReceipt(nil, run, hash)
		if !bytes.Equal(receipt, append(keys.ReceiptPrefix(run), hash...)) {
			t.Fatalf("receipt %x does not begin with its run's prefix", receipt)
		}
		if run == ^uint64(0) {
			return // No run ever gets the last number: its end would wrap around.
		}
		within(t, place, keys.AppendPlace(nil, other, 0), keys.PlacesEnd(other), run == other)
		within(t, receipt, keys.ReceiptPrefix(other), keys.ReceiptsEnd(other), run == other)
		within(t, receipt, keys.AppendPlace(nil, run, 0), keys.PlacesEnd(run), false)
		within(t, place, keys.ReceiptPrefix(run), keys.ReceiptsEnd(run), false)
	})
}

func within(t *rapid.T, key, from, to []byte, want bool) {
	if got := bytes.Compare(from, key) <= 0 && bytes.Compare(key, to) < 0; got != want {
		t.Fatalf("%x lies in [%x, %x): %t, want %t", key, from, to, got, want)
	}
}

// TestTablesApart proves that no key of one table is one of another, whatever a run is called.
func TestTablesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run, n := number(t, "run"), number(t, "n")
		name := string(rapid.SliceOfN(rapid.Byte(), 1, 256).Draw(t, "name"))
		all := [][]byte{
			keys.Applied, keys.AppendChunk(nil, n, 0), keys.AppendHead(nil, run), keys.AppendPlace(nil, run, n),
			keys.AppendReceipt(nil, run, make([]byte, 32)), keys.AppendMetadata(nil, run), keys.AppendIdentity(nil, run),
			keys.AppendRunNo(nil, name), keys.AppendStamp(nil, int64(n>>1)),
		}
		tables := map[byte]bool{}
		for _, k := range all {
			if tables[k[0]] {
				t.Fatalf("table %q twice", k[0])
			}
			tables[k[0]] = true
		}
		if got := keys.AppendRunNo(nil, name); string(got[1:]) != name {
			t.Fatalf("run number key %x of %q", got, name)
		}
	})
}

// TestStampKey proves that stamps lie in the order of time (READ-3).
func TestStampKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Min(0).Draw(t, "stamp")
		b := rapid.Int64Min(0).Draw(t, "other stamp")
		if got, want := bytes.Compare(keys.AppendStamp(nil, a), keys.AppendStamp(nil, b)), cmp.Compare(a, b); got != want {
			t.Fatalf("stamps %d and %d are in order %d", a, b, got)
		}
	})
}

// TestAppendKeepsPrefix proves that every Append function keeps what is in its destination.
func TestAppendKeepsPrefix(t *testing.T) {
	for i, f := range []func([]byte) []byte{
		func(b []byte) []byte { return keys.AppendChunk(b, 1, 2) },
		func(b []byte) []byte { return keys.AppendHead(b, 1) },
		func(b []byte) []byte { return keys.AppendMetadata(b, 1) },
		func(b []byte) []byte { return keys.AppendIdentity(b, 1) },
		func(b []byte) []byte { return keys.AppendRunNo(b, "run") },
		func(b []byte) []byte { return keys.AppendPlace(b, 1, 2) },
		func(b []byte) []byte { return keys.AppendReceipt(b, 1, make([]byte, 32)) },
		func(b []byte) []byte { return keys.AppendStamp(b, 3) },
	} {
		if got := f([]byte("begin")); !bytes.Equal(got, append([]byte("begin"), f(nil)...)) {
			t.Errorf("function %d gives %x", i, got)
		}
	}
}
