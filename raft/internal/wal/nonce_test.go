package wal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"
)

// TestNoncesD3: entries that a node makes in a term have one nonce, those of another term or
// another start have another one, and those of another leader keep theirs. A restart changes none.
func TestNoncesD3(t *testing.T) {
	dir := t.TempDir()
	open := func() *Log {
		s, err := openForTest(vfs.Default, dir, 64<<10, func(err error) { t.Errorf("the log fails: %v", err) })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	store := func(index, term uint64, nonces []byte) {
		if err := s.StoreLog(&hraft.Log{Index: index, Term: term, Data: []byte("data"), Extensions: nonces}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(index, term uint64) EntryID {
		own, err := s.Entry(index)
		if err != nil || own.Index != index || own.Term != term {
			t.Fatalf("entry %d is %+v, %v", index, own, err)
		}
		if holds, err := s.Holds(own); !holds || err != nil {
			t.Errorf("the log holds %+v: %v, %v", own, holds, err)
		}
		return own
	}
	restart := func() {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open()
	}
	store(1, 4, nil)
	store(2, 4, nil)
	store(3, 5, nil)
	store(4, 6, FormatNonces(66, 0))
	restart()
	store(5, 5, nil) // as Recover makes one
	var before []EntryID
	for i, term := range []uint64{4, 4, 5, 6, 5} {
		before = append(before, read(uint64(i+1), term))
	}
	for i, same := range []bool{true, false, false, false} {
		if got := before[i].Nonce == before[i+1].Nonce; got != same || before[i].Nonce == 0 {
			t.Errorf("entries %+v and %+v", before[i], before[i+1])
		}
	}
	if before[3].Nonce != 66 || before[2].Nonce == before[4].Nonce {
		t.Errorf("entries %+v", before)
	}
	restart()
	for i, want := range before {
		if got := read(want.Index, want.Term); got != want {
			t.Errorf("entry %d was %+v, is %+v", i+1, want, got)
		}
	}
	if holds, err := s.Holds(EntryID{Index: 4, Term: 7, Nonce: 66}); holds || err != nil {
		t.Errorf("the log holds an entry of another term: %v, %v", holds, err)
	}
	if own, err := s.Entry(6); own != (EntryID{}) || err != nil {
		t.Errorf("an entry that is not there is %+v, %v", own, err)
	}
	restart()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestEntriesWithoutNonce: an entry of an earlier version has none, and gets none from a node
// that copies it.
func TestEntriesWithoutNonce(t *testing.T) {
	s, err := openForTest(vfs.Default, t.TempDir(), 64<<10, func(err error) { t.Errorf("the log fails: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	old := hraft.Log{Index: 1, Term: 1, Data: []byte("data")}
	if err := s.wal.StoreLogs(sealed([]*hraft.Log{&old})); err != nil {
		t.Fatal(err)
	}
	var l hraft.Log
	if err := s.GetLog(1, &l); err != nil {
		t.Fatal(err)
	}
	l.Index = 2
	for _, l := range []*hraft.Log{&l, {Index: 3, Term: 1, Data: []byte("data")}} {
		if err := errors.Join(Received(l), s.StoreLog(l)); err != nil {
			t.Fatal(err)
		}
	}
	s.cache.clear()
	s.tail.Store(nil)
	for index := uint64(1); index <= 3; index++ {
		if own, err := s.Entry(index); own != (EntryID{Index: index, Term: 1}) || err != nil {
			t.Errorf("entry %d is %+v, %v", index, own, err)
		}
	}
}

// TestReceivedD3: an entry with extensions that this build cannot read back is refused.
func TestReceivedD3(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                  true,
		string(FormatNonces(1, 2)):          true,
		string(FormatNonce(1)):              false,
		"0123456789abcdefg":                 false,
		string(FormatNonces(1, 2)) + "more": false,
	} {
		l := &hraft.Log{Index: 1, Extensions: []byte(text)}
		if err := Received(l); (err == nil) != want || err == nil && len(l.Extensions) != noncesSize {
			t.Errorf("extensions %q: %v, %q", text, err, l.Extensions)
		}
	}
	for _, address := range []string{"", "db1:7000", "db10:7000", "db1.example:70000"} {
		if got := ParseNonce([]byte(address)); got != 0 {
			t.Errorf("the address %q is taken for the nonce %x", address, got)
		}
	}
}

// TestAnotherEntryBeforeD3: the log stores no entry whose leader has another entry before it, not
// even behind a snapshot.
func TestAnotherEntryBeforeD3(t *testing.T) {
	conflict := errors.New("conflict")
	for name, begin := range map[string]func(s *Log) error{
		"in the log":    func(s *Log) error { return s.StoreLog(&hraft.Log{Index: 1, Term: 4, Extensions: FormatNonces(9, 0)}) },
		"in a snapshot": func(s *Log) error { s.BeginAfter(EntryID{Index: 1, Term: 4, Nonce: 9}); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var told []error
			s, err := openForTest(vfs.Default, t.TempDir(), 64<<10, func(err error) { told = append(told, err) })
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.opts.Conflict = func(own EntryID) error { return fmt.Errorf("%w at %d", conflict, own.Index) }
			if err := begin(s); err != nil {
				t.Fatal(err)
			}
			for _, before := range []uint64{8, 9} {
				err := s.StoreLog(&hraft.Log{Index: 2, Term: 5, Extensions: FormatNonces(3, before)})
				if want := before == 8; errors.Is(err, conflict) != want || len(told) != 1 {
					t.Errorf("an entry behind %d is stored behind 9: %v, told %v", before, err, told)
				}
			}
			if err := s.StoreLog(&hraft.Log{Index: 3, Term: 6}); err != nil { // its own
				t.Error(err)
			}
			var l hraft.Log
			if err := s.GetLog(3, &l); err != nil || nonceBefore(&l) != 3 {
				t.Errorf("its own entry is behind %d: %v", nonceBefore(&l), err)
			}
		})
	}
}

// TestConflicts: two entries conflict if they have the same place and two known nonces.
func TestConflicts(t *testing.T) {
	own := EntryID{Index: 7, Term: 3, Nonce: 1}
	for other, want := range map[EntryID]bool{
		own:                           false,
		{Index: 7, Term: 3, Nonce: 2}: true,
		{Index: 7, Term: 3}:           false,
		{Index: 7, Term: 4, Nonce: 2}: false,
		{Index: 8, Term: 3, Nonce: 2}: false,
	} {
		if own.Conflicts(other) != want || other.Conflicts(own) != want {
			t.Errorf("%+v and %+v conflict: %v", own, other, !want)
		}
	}
}
