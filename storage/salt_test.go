package storage_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// receiptsOf are the values of the rows of receipts.
func receiptsOf(t rapid.TB, s *storage.Store) (values [][]byte) {
	t.Helper()
	rows, err := s.Dump()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(rows); i += 2 {
		if rows[i][0] == 'k' {
			values = append(values, rows[i+1])
		}
	}
	return values
}

func saltOf(t rapid.TB, l *storagetest.Local, run string, seq uint64) contract.Salt {
	t.Helper()
	records, err := l.Events(run, seq-1)
	if err != nil || len(records) == 0 {
		t.Fatalf("run %q: %d records after %d, %v", run, len(records), seq-1, err)
	}
	return records[0].PayloadSalt
}

// TestDuplicateKeepsItsSaltLIFE5IDM6: another try has another salt, and gets the first receipt.
// Its content is the same exactly if its bytes are, whatever the salts and whatever key it brings
// along, also after the store was opened again.
func TestDuplicateKeepsItsSaltLIFE5IDM6(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{FS: vfs.NewMem()})
		defer l.Close()
		payloads := rapid.SampledFrom([]string{`{}`, `{"a":1}`, `{"a":2}`, `{"a":1 }`})
		salts := rapid.Map(rapid.Uint16(), func(n uint16) contract.Salt { return contract.Salt{byte(n), byte(n >> 8)} })
		keys := rapid.Map(rapid.ByteMin(1), func(b byte) storage.ReceiptKey { return storage.ReceiptKey{b} })
		type first struct {
			payload string
			salt    contract.Salt
			seq     uint64
		}
		stored := map[int]first{}
		for i := range rapid.IntRange(1, 20).Draw(t, "requests") {
			a := &storage.Append{RunID: "run", Keyed: len(stored) > 0 && rapid.Bool().Draw(t, "keyed"), ReceiptKey: keys.Draw(t, "key")}
			numbers := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 4).Draw(t, "events")
			for _, n := range numbers {
				e := storagetest.Event("run", n)
				e.Payload = []byte(payloads.Draw(t, "payload"))
				a.Events, a.Salts = append(a.Events, e), append(a.Salts, salts.Draw(t, "salt"))
			}
			c, err := storage.EncodeAppend(a)
			if err != nil {
				t.Fatal(err)
			}
			p := storage.NewProposal(storagetest.Cluster, c.Size())
			p.Add(c)
			outcomes, err := l.Store.Apply(uint64(i+1), 1, p.Seal(int64(i+1)))
			if err != nil || outcomes[0].Err != nil {
				t.Fatal(err, outcomes)
			}
			for k, n := range numbers {
				r := outcomes[0].Results[k]
				f, dup := stored[n]
				if !dup {
					f = first{string(a.Events[k].Payload), a.Salts[k], r.RunSeq}
					stored[n] = f
				}
				same := dup && f.payload == string(a.Events[k].Payload)
				if r.Duplicate != dup || r.SameContent != same || r.RunSeq != f.seq {
					t.Fatalf("event %d: %+v, want duplicate %v, same %v, runSeq %d", n, r, dup, same, f.seq)
				}
				if got := saltOf(t, l, "run", f.seq); got != f.salt {
					t.Fatalf("event %d has the salt %s, and got %s first", n, got, f.salt)
				}
			}
			if rapid.IntRange(0, 4).Draw(t, "reopen") == 0 {
				if err := l.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
			if !l.Store.Keyed() {
				t.Fatal("a store with events has no key for receipts")
			}
		}
	})
}

// TestNothingToGuessByLIFE5: no row has a digest that follows from what a payload says, so that a
// guess cannot be tried once salts and payloads are gone. The same events have other receipts in a
// cluster with another key.
func TestNothingToGuessByLIFE5(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := storagetest.Events("run", 0, rapid.IntRange(1, 6).Draw(t, "events"))
		imports := rapid.Bool().Draw(t, "imports")
		var receipts [2][][]byte
		for i, key := range []storage.ReceiptKey{{1}, {2}} {
			a := &storage.Append{RunID: "run", Events: events, ReceiptKey: key}
			if imports {
				for n := range events {
					a.Imported = append(a.Imported, storage.Assigned{RunSeq: uint64(n + 1), Original: contract.Original{PersistedAt: int64(n + 1)}})
				}
			}
			c, err := storage.EncodeAppend(a)
			if err != nil {
				t.Fatal(err)
			}
			l := open(t, storage.Options{FS: vfs.NewMem()})
			p := storage.NewProposal(storagetest.Cluster, c.Size())
			p.Add(c)
			if outcomes, err := l.Store.Apply(1, 1, p.Seal(1)); err != nil || outcomes[0].Err != nil {
				t.Fatal(err, outcomes)
			}
			receipts[i] = receiptsOf(t, l.Store)
			rows, err := l.Store.Dump()
			if err := errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
			all := bytes.Join(rows, []byte{0})
			for n := range events {
				e := &events[n]
				plain, content := sha256.Sum256(e.Payload), e.ContentDigest()
				imported := e.ImportedDigest(contract.Original{PersistedAt: int64(n + 1)})
				unsalted, record := e.Digests(contract.Salt{}, contract.Author{}, contract.Original{})
				for _, guess := range [][]byte{plain[:8], content[:], imported[:], unsalted[:8], record[:8]} {
					if bytes.Contains(all, guess) {
						t.Fatalf("a row has %x, which follows from the payload of event %d", guess, n)
					}
				}
			}
		}
		for n := range receipts[0] {
			if a, b := receipts[0][n], receipts[1][n]; bytes.Equal(a[:32], b[:32]) == bytes.Equal(a[32:], b[32:]) {
				t.Fatalf("receipts under two keys: %x, %x", a, b)
			}
		}
	})
}

// TestReceiptKeyStaysLIFE5: the key of the first append stays, in every copy of the store, and
// every node has the same one. An append that has none, where the store has none, stops the node.
func TestReceiptKeyStaysLIFE5(t *testing.T) {
	entry := func(keyed bool, key storage.ReceiptKey, n int) []byte {
		t.Helper()
		c, err := storage.EncodeAppend(&storage.Append{RunID: "run", Events: storagetest.Events("run", n, 1), Keyed: keyed, ReceiptKey: key})
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(storagetest.Cluster, c.Size())
		p.Add(c)
		return p.Seal(int64(n) + 1)
	}
	l := open(t, storage.Options{})
	log := [][]byte{entry(false, storage.ReceiptKey{7}, 0), entry(false, storage.ReceiptKey{8}, 1), entry(true, storage.ReceiptKey{}, 2)}
	if l.Store.Keyed() {
		t.Error("an empty store has a key")
	}
	for i, data := range log {
		if _, err := l.Store.Apply(uint64(i+1), 1, data); err != nil {
			t.Fatal(err)
		}
		if got := l.Store.Applied().ReceiptKey; got != (storage.ReceiptKey{7}) {
			t.Errorf("after entry %d the key is %x", i+1, got[:])
		}
	}
	stream := streamOf(t, l)
	other := open(t, storage.Options{})
	if err := other.Store.Install(bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*storagetest.Local{l, other} {
		if err := s.Reopen(); err != nil {
			t.Fatal(err)
		}
		o, err := s.Store.Apply(4, 1, entry(true, storage.ReceiptKey{}, 0))
		if err != nil || !o[0].Results[0].Duplicate || !o[0].Results[0].SameContent || s.Store.Applied().ReceiptKey != (storage.ReceiptKey{7}) {
			t.Errorf("a duplicate is answered with %+v, %v", o, err)
		}
	}
	if a, b := receiptsOf(t, l.Store), receiptsOf(t, other.Store); !slices.EqualFunc(a, b, bytes.Equal) {
		t.Errorf("receipts %x and %x", a, b)
	}
	none := open(t, storage.Options{})
	if _, err := none.Store.Apply(1, 1, entry(true, storage.ReceiptKey{}, 0)); err == nil || !strings.Contains(err.Error(), "without a key for receipts") {
		t.Errorf("an append without a key in a store without one: %v", err)
	}
	if err := errors.Join(l.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if text := fmt.Sprintf("%+v", l.Store.Applied()); !strings.Contains(text, "ReceiptKey:(secret)") {
		t.Error(text)
	}
}
