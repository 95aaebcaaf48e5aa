package backup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// tap calls a function before each operation of a disk.
type tap struct {
	mu   sync.Mutex
	call func(op errorfs.Op) error
}

func (t *tap) set(call func(op errorfs.Op) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call = call
}

func (t *tap) disk(disk vfs.FS) vfs.FS {
	return errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.call == nil {
			return nil
		}
		return t.call(op)
	}))
}

// TestCrash: power that goes before any operation of the disk, in a backup or in a prune, leaves
// backups that are whole: the old ones, and the new one once it was answered; and the next backup
// is whole too.
func TestCrash(t *testing.T) {
	mem, tap := vfs.NewCrashableMem(), &tap{}
	r, n := Open(tap.disk(mem), "dir"), newFakeNode()
	nodes := map[string]fakeNode{}
	var durable []string
	type crash struct {
		disk *vfs.MemFS
		op   errorfs.Op
		must []string // backups that must be there
	}
	var crashes []crash
	rng := rand.New(rand.NewPCG(7, 0))
	tap.set(func(op errorfs.Op) error {
		percent := []int{0, 100, 50}[len(crashes)%3]
		disk := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
		crashes = append(crashes, crash{disk, op, durable})
		return nil
	})
	for i := range 4 {
		if i == 2 { // one that is cut, whose tables the next one has
			n.cutAfter(12)
			if _, err := r.Take(n.source, TakeOptions{}); !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			n.change = nil
		}
		b := n.statement()
		nodes[fmt.Sprint(b.Position)] = *n
		m := n.take(t, r)
		durable = append(durable[:len(durable):len(durable)], m.Name)
		n.next()
	}
	durable = durable[2:] // from here on the others may go
	if _, err := r.Prune(t.Context(), 2, nil); err != nil {
		t.Fatal(err)
	}
	tap.set(nil)
	for i, c := range crashes {
		after := Open(c.disk, "dir")
		list, err := after.List()
		if err != nil {
			t.Fatalf("crash %d at %v: %v", i, c.op, err)
		}
		there := map[string]bool{}
		for _, e := range list {
			if e.Err != nil {
				t.Fatalf("crash %d at %v: %v", i, c.op, e.Err)
			}
			there[e.Name] = true
			node := nodes[fmt.Sprint(e.Position)]
			node.wantFiles(t, after, e.Manifest)
		}
		for _, name := range c.must {
			if !there[name] {
				t.Fatalf("crash %d at %v: %s is gone", i, c.op, name)
			}
		}
		n.wantFiles(t, after, n.take(t, after).Manifest)
	}
	t.Logf("power lost at %d operations", len(crashes))
}

// TestDiskErrors: an error of any operation of the disk ends a backup with that error, and leaves
// what was there.
func TestDiskErrors(t *testing.T) {
	for at := 0; ; at++ {
		mem, tap := vfs.NewMem(), &tap{}
		r, n := Open(tap.disk(mem), "dir"), newFakeNode()
		first := n.take(t, r)
		old := *n
		n.next()
		count, hit := 0, false
		tap.set(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpGetDiskUsage || op.Kind == errorfs.OpStat {
				return nil // lost room is not reported, and an unknown file is sent
			}
			if count++; count != at+1 {
				return nil
			}
			hit = true
			return errorfs.ErrInjected
		})
		_, err := r.Take(n.source, TakeOptions{})
		tap.set(nil)
		if !hit {
			if err != nil || at < 50 {
				t.Fatalf("%d operations, %v", at, err)
			}
			return
		}
		if err != nil && !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("error at operation %d: %v", at, err)
		}
		if err == nil {
			t.Fatalf("an error at operation %d is not told", at)
		}
		old.wantFiles(t, r, first.Manifest)
		list, err := r.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Err != nil {
				t.Fatalf("error at operation %d: %v", at, e.Err)
			}
			if err := r.Verify(t.Context(), e.Manifest, nil); err != nil {
				t.Fatalf("error at operation %d: %v", at, err)
			}
		}
		n.wantFiles(t, r, n.take(t, r).Manifest)
	}
}
