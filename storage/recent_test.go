package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

var errNotes = errors.New("refused")

// notes is a machine whose operations are steps: "gk" reads row k into the reply, "skx" writes x to
// it, "dk" deletes it, and "r" refuses. It overwrites what it has got and what it has given.
var notes = stub{kind: 61, tables: []string{"A"}, apply: func(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	spoil := func(b []byte) { copy(b, bytes.Repeat([]byte{'!'}, len(b))) }
	for step := range bytes.FieldsSeq(op) {
		if step[0] == 'r' {
			return nil, errNotes, nil
		}
		key, value := []byte{'A', step[1]}, bytes.Clone(step[2:])
		switch step[0] {
		case 'g':
			row, err := tx.Get(key)
			if err != nil {
				return nil, nil, err
			}
			reply = append(reply, shown(string(row), row != nil)...)
			spoil(row)
		case 's':
			tx.Set(key, value)
		case 'd':
			tx.Delete(key)
		}
		spoil(key)
		spoil(value)
	}
	return reply, nil, nil
}}

func shown(value string, exists bool) string { return fmt.Sprintf("%s,%t ", value, exists) }

// noted is what notes must make of an operation on rows.
func noted(rows map[string]string, op string) (reply string, refused error) {
	before := maps.Clone(rows)
	for step := range strings.FieldsSeq(op) {
		if step == "r" {
			clear(rows)
			maps.Copy(rows, before)
			return "", errNotes
		}
		switch key := step[1:2]; step[0] {
		case 'g':
			value, exists := rows[key]
			reply += shown(value, exists)
		case 's':
			rows[key] = step[2:]
		case 'd':
			delete(rows, key)
		}
	}
	return reply, nil
}

// notesKeys are those of the rows. No operation writes the last one.
const notesKeys = "abcdefghz"

// drawNotes draws an operation that writes rows of many sizes.
func drawNotes(t *rapid.T) string {
	var steps []string
	key := rapid.SampledFrom(strings.Split(notesKeys[:len(notesKeys)-1], ""))
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		kind := rapid.SampledFrom([]string{"g", "g", "s", "s", "d", "r"}).Draw(t, "step")
		switch kind {
		case "s":
			kind += key.Draw(t, "key")
			kind += strings.Repeat(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "value"), rapid.SampledFrom([]int{0, 1, 30, 150, 400}).Draw(t, "size"))
		case "g", "d":
			kind += key.Draw(t, "key")
		}
		steps = append(steps, kind)
	}
	return strings.Join(steps, " ")
}

// sealNotes makes a proposal of commands of one operation each.
func sealNotes(t rapid.TB, clock int64, ops ...string) []byte {
	t.Helper()
	p := storage.NewProposal(storagetest.Cluster, 0)
	for _, op := range ops {
		c, err := storage.EncodeCommand(storage.Operation{Kind: notes.kind, Data: []byte(op)})
		if err != nil {
			t.Fatal(err)
		}
		p.Add(c)
	}
	return p.Seal(clock)
}

// recentTrue wants the cache of a store to say of all rows what the database has, and counts those
// that it knows.
func recentTrue(t rapid.TB, s *storage.Store, limit int) (known int) {
	t.Helper()
	for _, k := range notesKeys {
		cached, ok, row, err := s.Recent([]byte{'A', byte(k)})
		switch {
		case err != nil:
			t.Fatal(err)
		case ok && (!bytes.Equal(cached, row) || (cached == nil) != (row == nil)):
			t.Fatalf("the cache has %q for row %c, the database %q", cached, k, row)
		case ok:
			known++
		}
	}
	if got := s.RecentBytes(); got > limit {
		t.Fatalf("%d rows take %d bytes, at most %d may be", known, got, limit)
	}
	return known
}

// TestRecentRowsD11: what machines read, reply and leave does not depend on which rows are in
// memory: of a store that keeps all, one that keeps none, one that keeps few, one that is opened
// again and one that is replaced by a checkpoint. What is in memory is what the database has, and
// no more than may be (D5, D12).
func TestRecentRowsD11(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := []int{1 << 20, 1, 700, 1 << 20, 1 << 20}
		var stores []*storagetest.Local
		for _, limit := range limits {
			stores = append(stores, open(t, storage.Options{RowBytes: limit, Machines: []storage.Machine{notes}}))
		}
		reopened, replaced := stores[3], stores[4]
		rows := map[string]string{}
		for index := range rapid.Uint64Range(1, 12).Draw(t, "proposals") {
			ops := append(rapid.SliceOfN(rapid.Custom(drawNotes), 1, 5).Draw(t, "commands"), "gz")
			data := sealNotes(t, int64(index), ops...)
			away := rapid.IntRange(0, 2).Draw(t, "away") == 0
			for i, l := range stores {
				switch behind := l.Applied().Index < index; {
				case l == replaced && away:
					continue
				case l == replaced && behind:
					if err := l.Store.Install(bytes.NewReader(streamOf(t, stores[0]))); err != nil {
						t.Fatal(err)
					}
				default:
					outcomes, err := l.Store.Apply(index+1, 1, bytes.Clone(data))
					if err != nil {
						t.Fatal(err)
					}
					compareNotes(t, maps.Clone(rows), ops, outcomes)
				}
				if l.Applied().RollingHash != stores[0].Applied().RollingHash {
					t.Fatalf("store %d has another rolling hash", i)
				}
				known := recentTrue(t, l.Store, limits[i])
				if i == 0 && known == 0 || i == 1 && known > 0 {
					t.Fatalf("store %d keeps %d rows", i, known)
				}
			}
			for _, op := range ops {
				_, _ = noted(rows, op)
			}
			if rapid.IntRange(0, 2).Draw(t, "reopen") == 0 {
				if err := reopened.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, l := range stores {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func compareNotes(t rapid.TB, rows map[string]string, ops []string, outcomes []storage.Outcome) {
	t.Helper()
	for i, op := range ops {
		reply, refused := noted(rows, op)
		if got := &outcomes[i]; !errors.Is(got.Err, refused) || string(got.Answers[0].Reply) != reply {
			t.Fatalf("%q gave %q, %v; want %q, %v", op, got.Answers[0].Reply, got.Err, reply, refused)
		}
	}
}

// TestRefusedCommandLeavesCacheAPP3: what a refused command has written is in no later read,
// whether the row was in memory before or not, within the proposal and after it.
func TestRefusedCommandLeavesCacheAPP3(t *testing.T) {
	t.Parallel()
	l := open(t, storage.Options{Machines: []storage.Machine{notes}})
	rows := map[string]string{}
	for i, ops := range [][]string{
		{"sa1", "sb1"},
		{"sa2 db sc2 ga gb gc r", "ga gb gc"},
		{"ga gb gc"},
		{"sc3", "dc ga r", "gc"},
		{"da", "sa4 r", "ga"},
		{"ga gc"},
	} {
		if i%2 == 0 {
			if err := l.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
		outcomes, err := l.Store.Apply(uint64(i+1), 1, sealNotes(t, int64(i), ops...))
		if err != nil {
			t.Fatal(err)
		}
		compareNotes(t, maps.Clone(rows), ops, outcomes)
		for _, op := range ops {
			_, _ = noted(rows, op)
		}
		recentTrue(t, l.Store, 1<<20)
	}
	if got, want := slices.Sorted(maps.Keys(rows)), []string{"b", "c"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
