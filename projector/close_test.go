package projector

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestCloseEndsWithoutItsDirectory: if the disk takes no writes, Close still ends, also when memory
// has more to store than the database's memtables hold.
func TestCloseEndsWithoutItsDirectory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		storagetest.Large(t)
		b := newBed(t)
		rng := rand.New(rand.NewPCG(12, 12))
		pool := make([]byte, 4<<20)
		for i := range pool {
			if pool[i] = byte(' ' + 3 + rng.IntN(80)); pool[i] == '\\' {
				pool[i] = 'x'
			}
		}
		text := func(n int) string {
			at := rng.IntN(len(pool) - n)
			return string(pool[at : at+n])
		}
		if err := b.opts.FS.RemoveAll(b.opts.Dir); err != nil {
			t.Fatal(err)
		}
		const runs, events = 16, 40
		for r := range runs {
			runID := fmt.Sprint("large-", r)
			var list []contract.Event
			for i := range events {
				e := storagetest.Event(runID, i)
				e.Type = contract.StepCompleted
				payload, err := json.Marshal(map[string]any{"artifacts": []any{map[string]any{"uri": text(60_000), "kind": "table"}}})
				if err != nil {
					t.Fatal(err)
				}
				e.Payload = payload
				list = append(list, keyed(e))
			}
			b.propose(storagetest.Request{Append: &storage.Append{RunID: runID, Events: list}})
		}
		b.settle()
		p := b.p
		b.p = nil
		ended(t, "Close", func() { _ = p.Close() })
	})
}

// TestReadersOfAClosedProjector: readers that come while the projector is closed, and after that,
// have their answer or ErrRemaking. The database is not closed under them.
func TestReadersOfAClosedProjector(t *testing.T) {
	b := newBed(t)
	b.propose(storagetest.Request{Append: &storage.Append{RunID: "run", Events: []contract.Event{keyed(storagetest.Event("run", 0))}}})
	b.settle()
	p := b.p
	b.p = nil
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				size, _, err := p.TreeRoot(1)
				if errors.Is(err, ErrRemaking) {
					return
				}
				if size != 1 || err != nil {
					t.Error(size, err)
					return
				}
			}
		})
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	readers.Wait()
	if _, err := p.List(run.Filter{}, nil, 1); !errors.Is(err, ErrRemaking) {
		t.Error(err)
	}
}
