package storage_test

import (
	"testing"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestWhenColdRunsAreIndexedD12: the receipts of a run that was loaded are indexed once as many
// keys were asked for as make it worth it, and are counted; those of a run with too many never are.
func TestWhenColdRunsAreIndexedD12(t *testing.T) {
	storagetest.Large(t)
	for _, c := range []struct {
		stored, each int
		proposals    int // until it is indexed; 0: never
	}{
		{1, 1, 4}, {40, 3, 2}, {160, 1, 10}, {160, 10, 1}, {storage.MaxIndexed, 1000, 2}, {storage.MaxIndexed + 1, 1000, 0},
	} {
		l := open(t, storage.Options{})
		propose := func(first, n int) {
			t.Helper()
			request := storagetest.Request{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", first, n)}}
			if _, err := l.Propose(1, []storagetest.Request{request}); err != nil {
				t.Fatal(err)
			}
			if got, want := l.Store.ActiveMemory(), l.Store.ActiveSizes(); got != want {
				t.Errorf("%+v: %d bytes counted, are %d", c, got, want)
			}
		}
		for at := 0; at < c.stored; at += 1000 {
			propose(at, min(1000, c.stored-at))
		}
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
		indexed := 0
		for n := 1; n <= 20 && indexed == 0; n++ {
			propose(0, min(c.each, c.stored)) // duplicates all
			if receipts, _ := l.Store.Indexed("run"); receipts >= 0 {
				indexed = n
				if receipts != c.stored {
					t.Errorf("%+v: %d receipts indexed", c, receipts)
				}
			}
		}
		if indexed != c.proposals {
			t.Errorf("%+v: indexed after %d proposals", c, indexed)
		}
		// One more than can be indexed gives the index up, and counting begins again.
		if c.stored == storage.MaxIndexed {
			propose(c.stored, 1)
			if receipts, asked := l.Store.Indexed("run"); receipts != -1 || asked != 0 {
				t.Errorf("%d receipts indexed after the last, %d keys asked", receipts, asked)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
