package storage_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/machine/signing"
	"runlog/storage/storagetest"
)

// command applies one command as an entry of its own.
func command(t rapid.TB, s *storage.Store, index uint64, c storage.Command, err error) storage.Outcome {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, c.Size())
	p.Add(c)
	outcomes, err := s.Apply(index, 1, p.Seal(int64(index)))
	if err != nil {
		t.Fatal(err)
	}
	return outcomes[0]
}

// TestSigned: checkpoints follow each other and keys are counted, whatever is asked for; the store
// gives back what it took.
func TestSigned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		l := open(t, storage.Options{FS: fs})
		defer func() { _ = l.Close() }()
		var taken []signing.Checkpoint
		var keys []signing.Key
		for index := uint64(1); index < 40; index++ {
			if rapid.Bool().Draw(t, "key") {
				k := signing.Key{Number: uint64(rapid.IntRange(0, len(keys)+2).Draw(t, "number")), PublicKey: fmt.Sprint("key", index), Endorsement: "e"}
				c, err := storage.EncodeOne(signing.StoreKey(k))
				o := command(t, l.Store, index, c, err)
				var refused *signing.KeyError
				if want := k.Number == uint64(len(keys)+1); want != (o.Err == nil) || !want && !errors.As(o.Err, &refused) {
					t.Fatalf("key %d after %d: %v", k.Number, len(keys), o.Err)
				}
				if o.Err == nil {
					k.CreatedAt = o.PersistedAt
					keys = append(keys, k)
				}
				continue
			}
			if rapid.IntRange(0, 2).Draw(t, "cosignature") == 0 {
				cosigned(t, l.Store, index, taken)
				continue
			}
			last := storage.Position(0)
			if len(taken) > 0 {
				last = taken[0].Position
			}
			near := func(p storage.Position, what string) storage.Position {
				return storage.Position(max(0, int64(p)+int64(rapid.IntRange(-1, 1).Draw(t, what))))
			}
			given := signing.Checkpoint{Follows: last, Note: fmt.Sprint("note", index)}
			given.Position = rapid.SampledFrom([]storage.Position{near(last, "p"), near(storage.Position(index), "q"), storage.Position(index) - 1}).Draw(t, "position")
			if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
				given.Follows = near(last, "follows")
			}
			c, err := storage.EncodeOne(signing.StoreCheckpoint(given))
			o := command(t, l.Store, index, c, err)
			var refused *signing.CheckpointError
			want := given.Position > last && given.Position < storage.Position(index) && given.Follows == last
			if want != (o.Err == nil) || !want && !errors.As(o.Err, &refused) {
				t.Fatalf("checkpoint %+v at %d after %d: %v", given, index, last, o.Err)
			}
			if want {
				taken = append([]signing.Checkpoint{given}, taken...)
			}
		}
		if rapid.Bool().Draw(t, "reopen") {
			if err := l.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
		same(t, l.Store, taken, keys)
	})
}

// cosigned stores the cosignature of a witness beside a checkpoint that may not be there, and does
// the same with those that are expected. It takes the place of an earlier one by the same key.
func cosigned(t *rapid.T, s *storage.Store, index uint64, taken []signing.Checkpoint) {
	t.Helper()
	at := storage.Position(rapid.IntRange(0, int(index)).Draw(t, "of"))
	given := signing.Cosignature{Key: fmt.Sprint("w+", rapid.IntRange(0, 2).Draw(t, "witness")), Line: fmt.Sprint("line", index)}
	c, err := storage.EncodeOne(signing.StoreCosignature(at, given))
	o := command(t, s, index, c, err)
	i := slices.IndexFunc(taken, func(c signing.Checkpoint) bool { return c.Position == at })
	var refused *signing.CosignatureError
	if there := i >= 0; there != (o.Err == nil) || !there && !errors.As(o.Err, &refused) {
		t.Fatalf("cosignature of position %d: %v", at, o.Err)
	}
	if i < 0 {
		return
	}
	list := &taken[i].Cosignatures
	if same := slices.IndexFunc(*list, func(c signing.Cosignature) bool { return c.Key == given.Key }); same >= 0 {
		(*list)[same] = given
	} else {
		*list = append(*list, given)
	}
}

// TestCosignaturesBounded: a checkpoint has so many cosignatures that a note with them can be read,
// and no more.
func TestCosignaturesBounded(t *testing.T) {
	l := open(t, storage.Options{})
	defer func() { _ = l.Close() }()
	c, err := storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 5, Note: "n"}))
	if o := command(t, l.Store, 10, c, err); o.Err != nil {
		t.Fatal(o.Err)
	}
	for i := range 2 * signing.MaxCosignatures {
		// Each key a second time: it takes no further place.
		key := fmt.Sprint("w", i/2)
		if i >= 2*signing.MaxCosignatures-2 {
			key = fmt.Sprint("w", i)
		}
		c, err := storage.EncodeOne(signing.StoreCosignature(5, signing.Cosignature{Key: key, Line: fmt.Sprint(i)}))
		var refused *signing.CosignatureError
		o := command(t, l.Store, uint64(11+i), c, err)
		if full := i == 2*signing.MaxCosignatures-1; full != errors.As(o.Err, &refused) {
			t.Fatalf("cosignature %d of %s: %v", i, key, o.Err)
		}
	}
}

func same(t rapid.TB, s *storage.Store, taken []signing.Checkpoint, keys []signing.Key) {
	t.Helper()
	all, err := signing.Checkpoints(s, 0, 100)
	if err != nil || fmt.Sprint(all) != fmt.Sprint(taken) {
		t.Fatalf("checkpoints %v, %v; want %v", all, err, taken)
	}
	var paged []signing.Checkpoint
	for before := storage.Position(0); ; {
		page, err := signing.Checkpoints(s, before, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
		before = page[len(page)-1].Position
	}
	if fmt.Sprint(paged) != fmt.Sprint(all) {
		t.Fatalf("pages of checkpoints %v, want %v", paged, all)
	}
	for _, want := range taken {
		if got, err := signing.CheckpointOf(s, want.Position); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("checkpoint of %d: %v, %v; want %v", want.Position, got, err, want)
		}
	}
	got, err := signing.Keys(s)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(keys) {
		t.Fatalf("keys %v, %v; want %v", got, err, keys)
	}
	lastCheckpoint, err := signing.LastCheckpoint(s)
	lastKey, errKey := signing.LastKey(s)
	if errors.Join(err, errKey) != nil || len(taken) > 0 && fmt.Sprint(lastCheckpoint) != fmt.Sprint(taken[0]) || len(keys) > 0 && lastKey != keys[len(keys)-1] {
		t.Fatalf("last are %v and %v, %v", lastCheckpoint, lastKey, errors.Join(err, errKey))
	}
}

// TestSignedTogether: commands of one proposal see each other; what was refused leaves nothing; all
// of it counts in the rolling hash, and goes with a checkpoint of the store.
func TestSignedTogether(t *testing.T) {
	hash := func(note string) [32]byte {
		l := open(t, storage.Options{})
		defer func() { _ = l.Close() }()
		p := storage.NewProposal(storagetest.Cluster, 0)
		add := func(c storage.Command, err error) {
			if err != nil {
				t.Fatal(err)
			}
			p.Add(c)
		}
		add(storage.EncodeOne(signing.StoreKey(signing.Key{Number: 1, PublicKey: "a"})))
		add(storage.EncodeOne(signing.StoreKey(signing.Key{Number: 1, PublicKey: "b"})))
		add(storage.EncodeOne(signing.StoreKey(signing.Key{Number: 2, PublicKey: "c"})))
		add(storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 5, Note: note})))
		add(storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 5, Note: "x"})))
		add(storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 6, Note: "x"})))
		add(storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 6, Follows: 5, Note: "y"})))
		data := p.Seal(77)
		outcomes, err := l.Store.Apply(10, 1, data)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false, true, true, false, false, true} {
			if (outcomes[i].Err == nil) != want {
				t.Errorf("command %d: %v", i, outcomes[i].Err)
			}
		}
		taken := []signing.Checkpoint{{Position: 6, Follows: 5, Note: "y"}, {Position: 5, Note: note}}
		keys := []signing.Key{{Number: 1, PublicKey: "a", CreatedAt: 77}, {Number: 2, PublicKey: "c", CreatedAt: 77}}
		same(t, l.Store, taken, keys)
		if got, want := l.Applied().RollingHash, documentedHash(t, l.Store, data); got != want {
			t.Errorf("rolling hash %x, by docs/formats.md %x", got, want)
		}
		other := open(t, storage.Options{})
		defer func() { _ = other.Close() }()
		if err := other.Store.Install(bytes.NewReader(streamOf(t, l))); err != nil {
			t.Fatal(err)
		}
		same(t, other.Store, taken, keys)
		return l.Applied().RollingHash
	}
	one, again, two := hash("one"), hash("one"), hash("two")
	if one == two {
		t.Error("the note is not in the rolling hash")
	}
	if one != again {
		t.Error("the rolling hash is not deterministic")
	}
}

// documentedHash is the rolling hash of docs/formats.md after a first entry at index 10 that makes
// no run, and stores all the rows that there are of keys and checkpoints, keys first.
func documentedHash(t testing.TB, s *storage.Store, entry []byte) [32]byte {
	t.Helper()
	b := make([]byte, 32)
	for _, n := range []uint64{10, 77, 1, 0} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, entry[len(entry)-4:]...)
	rows, err := s.Dump()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(rows); i += 2 {
		if key := rows[i]; key[0] == 'p' || key[0] == 's' {
			sum := sha256.Sum256(rows[i+1])
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(key))), key...)
			b = append(append(b, 1), sum[:]...)
		}
	}
	return sha256.Sum256(b)
}

// TestHeads: what Heads says to have changed is what has, whenever it is asked, also after a
// restart and an install; a Heads shows its own moment however late it is read.
func TestHeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{})
		p := storagetest.NewPair(l)
		names := make([]string, 3*storage.RunGroup)
		for i := range names {
			names[i] = fmt.Sprintf("run-%d", i)
		}
		// Runs of one number group lie in as many buckets as they have scopes.
		scopes := rapid.SampledFrom([]int{1, 3, len(names)}).Draw(t, "scopes")
		appendTo := func(run, first, n int) storagetest.Request {
			events := ofTenant(fmt.Sprint("tenant-", run%scopes), storagetest.Events(names[run], first, n))
			return storagetest.Request{Append: &storage.Append{RunID: names[run], Events: events}}
		}
		seen := map[uint64]string{} // by group, as Heads has reported it
		var made int
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 3).Draw(t, "proposals") {
				var requests []storagetest.Request
				if more := rapid.IntRange(0, storage.RunGroup).Draw(t, "new"); made+more <= len(names) {
					for i := range more {
						requests = append(requests, appendTo(made+i, 0, rapid.IntRange(1, 2).Draw(t, "events")))
					}
					made += more
				}
				if made > 0 && rapid.Bool().Draw(t, "old") {
					requests = append(requests, appendTo(rapid.IntRange(0, made-1).Draw(t, "which"), rapid.IntRange(0, 9).Draw(t, "first"), 1))
				}
				if _, err := p.Propose(1, requests...); err != nil {
					t.Fatal(err)
				}
			}
			if rapid.IntRange(0, 4).Draw(t, "reopen") == 0 {
				if err := l.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
			v, err := l.Store.Heads()
			if err != nil {
				t.Fatal(err)
			}
			before := l.Applied()
			if rapid.Bool().Draw(t, "later") && made > 0 {
				if _, err := p.Propose(1, appendTo(0, 20+made, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if v.Applied != before || v.Runs != uint64(made) {
				t.Fatalf("heads of %d runs as of %d; want %d, %d", v.Runs, v.Applied.Index, made, before.Index)
			}
			i := 0
			for runs, err := range v.Groups(v.Changed) {
				if err != nil {
					t.Fatal(err)
				}
				seen[v.Changed[i]] = fmt.Sprint(runs)
				i++
			}
			all := make([]uint64, (made+storage.RunGroup-1)/storage.RunGroup)
			for g := range all {
				all[g] = uint64(g)
			}
			g, no := uint64(0), uint64(0)
			for runs, err := range v.Groups(all) {
				if err != nil {
					t.Fatal(err)
				}
				if seen[g] != fmt.Sprint(runs) {
					t.Fatalf("group %d has changed and was not told:\n%v\n%v", g, seen[g], runs)
				}
				for _, r := range runs {
					no++
					if r.RunID != names[no-1] {
						t.Fatalf("run %d is %q", no, r.RunID)
					}
				}
				g++
			}
			if no != uint64(made) {
				t.Fatalf("%d runs, want %d", no, made)
			}
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSignedFormats compares the commands and rows of signed checkpoints and public keys with what
// earlier builds wrote.
func TestSignedFormats(t *testing.T) {
	l := open(t, storage.Options{})
	defer func() { _ = l.Close() }()
	var out bytes.Buffer
	put := func(index uint64, c storage.Command, err error) {
		t.Helper()
		if o := command(t, l.Store, index, c, err); o.Err != nil {
			t.Fatal(o.Err)
		}
		fmt.Fprintf(&out, "command\n%s\n", hex.Dump(storage.CommandBytes(c)))
	}
	c, err := storage.EncodeOne(signing.StoreKey(signing.Key{Number: 1, PublicKey: "runlog/00+11+key", Endorsement: "note"}))
	put(5, c, err)
	c, err = storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 3, Note: "first"}))
	put(6, c, err)
	c, err = storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 6, Follows: 3, Note: "second"}))
	put(7, c, err)
	rows, err := l.Store.Dump()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(rows); i += 2 {
		if rows[i][0] == 'p' || rows[i][0] == 's' {
			fmt.Fprintf(&out, "key\n%svalue\n%s\n", hex.Dump(rows[i]), hex.Dump(rows[i+1]))
		}
	}
	golden(t, "signed", out.Bytes())
}
