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

func drawRun(t *rapid.T, label string) keys.Run {
	buckets := rapid.OneOf(rapid.Uint16(), rapid.SampledFrom([]uint16{0, 1, 255, 256, 65535}))
	return keys.Run{Bucket: buckets.Draw(t, label+" bucket"), No: number(t, label)}
}

// TestRunNames proves that the name of a run reads back, and that runs lie by bucket, then by
// number (D15).
func TestRunNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run, other := drawRun(t, "run"), drawRun(t, "other run")
		name := run.Append(nil)
		if got, ok := keys.ParseRun(name); !ok || got != run || len(name) != keys.RunSize {
			t.Fatalf("%x reads as %+v, %t, want %+v", name, got, ok, run)
		}
		if _, ok := keys.ParseRun(name[1:]); ok {
			t.Fatal("a short name reads")
		}
		want := cmp.Or(cmp.Compare(run.Bucket, other.Bucket), cmp.Compare(run.No, other.No))
		for _, key := range []func([]byte, keys.Run) []byte{keys.AppendHead, keys.AppendMetadata, keys.AppendIdentity} {
			if got := bytes.Compare(key(nil, run), key(nil, other)); got != want {
				t.Fatalf("%+v and %+v are in order %d, want %d", run, other, got, want)
			}
			if !keys.OfRun(key(nil, run)) {
				t.Fatalf("%x is not of a run", key(nil, run))
			}
		}
		if bytes.Compare(keys.AppendHead(nil, run), keys.HeadsEnd) >= 0 || bytes.Compare(keys.AppendIdentity(nil, run), keys.IdentitiesEnd) >= 0 {
			t.Fatalf("%+v lies behind the end of its table", run)
		}
		if got, want := bytes.Compare(keys.AppendBucket(nil, run.No), keys.AppendBucket(nil, other.No)), cmp.Compare(run.No, other.No); got != want {
			t.Fatalf("buckets of %d and %d are in order %d", run.No, other.No, got)
		}
	})
}

// TestRunKeyBytes shows a key of a run byte by byte (D15).
func TestRunKeyBytes(t *testing.T) {
	got := keys.AppendPlace(nil, keys.Run{Bucket: 0x0102, No: 3}, 4)
	if want := "i\x01\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x04"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	if seq, ok := keys.ParsePlace(got); !ok || seq != 4 {
		t.Errorf("reads as %d, %t", seq, ok)
	}
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
		run, other := drawRun(t, "run"), drawRun(t, "other run")
		switch rapid.IntRange(0, 3).Draw(t, "other") {
		case 0:
			other.Bucket = run.Bucket
		case 1:
			other = keys.Run{Bucket: run.Bucket, No: run.No + 1}
		case 2:
			other = keys.Run{Bucket: run.Bucket + 1, No: run.No}
		}
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
		if last := (keys.Run{Bucket: 65535, No: ^uint64(0)}); run == last || other == last {
			return // No run ever gets the last number: its end would wrap around.
		}
		within(t, place, keys.AppendPlace(nil, other, 0), keys.PlacesEnd(other), run == other)
		if got := bytes.HasPrefix(receipt, keys.ReceiptPrefix(other)); got != (run == other) {
			t.Fatalf("receipt %x begins with the prefix of %+v: %t", receipt, other, got)
		}
		within(t, receipt, keys.AppendPlace(nil, run, 0), keys.PlacesEnd(run), false)
		packed := keys.AppendPackedFrom(nil, run, [16]byte(hash))
		if prefix, ok := keys.ParsePacked(packed); !ok || !bytes.Equal(prefix[:], hash[:16]) {
			t.Fatalf("%x reads as %x, %t", packed, prefix, ok)
		}
		for _, key := range [][]byte{packed, keys.AppendPacked(nil, run)} {
			within(t, key, keys.AppendPacked(nil, other), keys.PackedEnd(other), run == other)
		}
		within(t, place, keys.AppendPacked(nil, run), keys.PackedEnd(run), false)
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
		run, n := drawRun(t, "run"), number(t, "n")
		name := string(rapid.SliceOfN(rapid.Byte(), 1, 256).Draw(t, "name"))
		all := [][]byte{
			keys.Applied, keys.AppendChunk(nil, n, 0), keys.AppendHead(nil, run), keys.AppendPlace(nil, run, n),
			keys.AppendReceipt(nil, run, make([]byte, 32)), keys.AppendMetadata(nil, run), keys.AppendIdentity(nil, run),
			keys.AppendRunID(nil, name), keys.AppendBucket(nil, n), keys.AppendStamp(nil, int64(n>>1)),
			keys.AppendPacked(nil, run), keys.AppendPacking(nil, n, 0),
		}
		tables := map[byte]bool{}
		for _, k := range all {
			if tables[k[0]] {
				t.Fatalf("table %q twice", k[0])
			}
			tables[k[0]] = true
		}
		if got := keys.AppendRunID(nil, name); string(got[1:]) != name {
			t.Fatalf("run id key %x of %q", got, name)
		}
	})
}

// TestPackingKeyLIFE9: the keys of runs to be packed read back, within their bounds, and lie in the
// order in which the runs were left.
func TestPackingKeyLIFE9(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := number(t, "position"), number(t, "other position")
		n, m := rapid.Uint32().Draw(t, "n"), rapid.Uint32().Draw(t, "other n")
		a, b := keys.AppendPacking(nil, p, n), keys.AppendPacking(nil, q, m)
		if gotP, gotN, ok := keys.ParsePacking(a); !ok || gotP != p || gotN != n {
			t.Fatalf("%x reads as %d, %d, %t", a, gotP, gotN, ok)
		}
		if got, want := bytes.Compare(a, b), cmp.Or(cmp.Compare(p, q), cmp.Compare(n, m)); got != want {
			t.Fatalf("%x and %x are in order %d, want %d", a, b, got, want)
		}
		within(t, a, keys.PackingStart, keys.PackingEnd, true)
		if _, _, ok := keys.ParsePacking(a[:12]); ok {
			t.Fatal("a short key reads")
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
	run := keys.Run{Bucket: 2, No: 1}
	for i, f := range []func([]byte) []byte{
		func(b []byte) []byte { return keys.AppendChunk(b, 1, 2) },
		func(b []byte) []byte { return keys.AppendHead(b, run) },
		func(b []byte) []byte { return keys.AppendMetadata(b, run) },
		func(b []byte) []byte { return keys.AppendIdentity(b, run) },
		func(b []byte) []byte { return keys.AppendRunID(b, "run") },
		func(b []byte) []byte { return keys.AppendBucket(b, 1) },
		func(b []byte) []byte { return keys.AppendPlace(b, run, 2) },
		func(b []byte) []byte { return keys.AppendReceipt(b, run, make([]byte, 32)) },
		func(b []byte) []byte { return keys.AppendStamp(b, 3) },
	} {
		if got := f([]byte("begin")); !bytes.Equal(got, append([]byte("begin"), f(nil)...)) {
			t.Errorf("function %d gives %x", i, got)
		}
	}
}
