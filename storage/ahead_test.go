package storage_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestAheadReadsWhatAFollowerReads: a reader ahead gets every commit that was made up to the call,
// wherever it stops, continues, goes back or leaps to.
func TestAheadReadsWhatAFollowerReads(t *testing.T) {
	for seed := range storagetest.Draws(6) {
		rng := rand.New(rand.NewPCG(seed, 20))
		l := open(t, storage.Options{})
		made := make([]int, 5)
		more := func(entries int) {
			for range entries {
				run := rng.IntN(len(made))
				propose(t, l, fmt.Sprint("run-", run), made[run], 1)
				made[run]++
			}
		}
		more(300)
		ahead := l.Store.FollowAhead(storage.Whole)
		storage.LimitAhead(ahead, 1+rng.IntN(400))
		at := storage.Position(0)
		for range 60 {
			more(rng.IntN(3))
			switch rng.IntN(6) {
			case 0:
				at -= min(at, storage.Position(rng.IntN(100)))
			case 1:
				at += storage.Position(rng.IntN(20))
			case 2:
				more(100)
			}
			want, err := storagetest.ReadLog(l.Store, at)
			if err != nil {
				t.Fatal(err)
			}
			at = readSome(t, ahead, at, want, rng.IntN(200), rng.IntN(2) == 0)
		}
		ahead.Close()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// readSome reads at most so many commits, and stops with the last one or at the next. It returns up
// to where it has read.
func readSome(t *testing.T, ahead *storage.Ahead, at storage.Position, want []storage.Commit, most int, stopAtNext bool) storage.Position {
	t.Helper()
	n := 0
	for c, err := range ahead.Log(at) {
		if err != nil {
			t.Fatal(err)
		}
		if stopAtNext && n == most {
			return at
		}
		if n == len(want) || c.Position != want[n].Position || c.Run.RunID != want[n].Run.RunID || !reflect.DeepEqual(c.Records, want[n].Records) {
			t.Fatalf("commit %d of %d is %+v", n, len(want), c)
		}
		at, n = c.Position, n+1
		if !stopAtNext && n >= most {
			return at
		}
	}
	if n != len(want) {
		t.Fatalf("%d commits, want %d", n, len(want))
	}
	return at
}
