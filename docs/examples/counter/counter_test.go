package counter_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/docs/examples/counter"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/storagetest"
)

// store is a store with the machine, at the machine's level.
func store(t rapid.TB) *storagetest.Local {
	t.Helper()
	l, err := storagetest.Open(storage.Options{
		FS: vfs.NewMem(), Machines: append(machine.All(), counter.Machine{}), FeatureLevel: counter.Level,
	})
	if err != nil {
		t.Fatal(err)
	}
	op, err := storage.RaiseLevel(counter.Level, 0)
	if err != nil {
		t.Fatal(err)
	}
	if o := apply(t, l, op); o.Err != nil {
		t.Fatal(o.Err)
	}
	return l
}

// apply applies a command as a log entry of its own.
func apply(t rapid.TB, l *storagetest.Local, operations ...storage.Operation) storage.Outcome {
	t.Helper()
	c, err := storage.EncodeCommand(operations...)
	if err != nil {
		t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, c.Size())
	p.Add(c)
	outcomes, err := l.Store.Apply(l.Applied().Index+1, 1, p.Seal(1))
	if err != nil {
		t.Fatal(err)
	}
	return outcomes[0]
}

func increment(t rapid.TB, name string, by uint64) storage.Operation {
	t.Helper()
	op, err := counter.Increment(name, by)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// TestCounter compares counters with a map, through refusals and restarts.
func TestCounter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, model := store(t), map[string]uint64{}
		for range rapid.IntRange(1, 30).Draw(t, "increments") {
			name := rapid.SampledFrom([]string{"a", "aa", "b"}).Draw(t, "name")
			by := rapid.SampledFrom([]uint64{0, 1, 7, counter.Limit / 2, counter.Limit, ^uint64(0)}).Draw(t, "by")
			o := apply(t, l, increment(t, name, by))
			var limit *counter.LimitError
			switch {
			case by > counter.Limit-model[name]:
				if !errors.As(o.Err, &limit) || limit.Value != model[name] {
					t.Fatalf("%d to %q at %d: %v", by, name, model[name], o.Err)
				}
			case o.Err != nil:
				t.Fatal(o.Err)
			default:
				model[name] += by
				if got, err := counter.Value(o.Answers[0].Reply); err != nil || got != model[name] {
					t.Fatalf("%q is at %d, %v; want %d", name, got, err, model[name])
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 9 {
				if err := l.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"a", "aa", "b"} {
				if got, err := counter.Read(l.Store, name); err != nil || got != model[name] {
					t.Fatalf("%q reads as %d, %v; want %d", name, got, err, model[name])
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCountedAppend: an increment and an append in one command take effect together or not at all.
func TestCountedAppend(t *testing.T) {
	l := store(t)
	var limit *counter.LimitError
	for n := range 3 {
		event, err := storage.AppendOperation(&storage.Append{RunID: "run", Events: storagetest.Events("run", n, 1)})
		if err != nil {
			t.Fatal(err)
		}
		o := apply(t, l, increment(t, "runs", counter.Limit/2), event)
		if n < 2 && o.Err != nil || n == 2 && !errors.As(o.Err, &limit) {
			t.Fatalf("increment %d: %v", n, o.Err)
		}
	}
	run, err := l.Store.Run("run")
	if err != nil || run.LastSeq != 2 {
		t.Fatalf("run %+v, %v", run, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLevel: below its level, an increment is neither proposed nor applied.
func TestLevel(t *testing.T) {
	l, err := storagetest.Open(storage.Options{
		FS: vfs.NewMem(), Machines: append(machine.All(), counter.Machine{}), FeatureLevel: counter.Level,
	})
	if err != nil {
		t.Fatal(err)
	}
	op := increment(t, "a", 1)
	c, err := storage.EncodeCommand(op)
	if err != nil {
		t.Fatal(err)
	}
	var level *storage.LevelError
	if err := l.Store.CheckLevel(c); !errors.As(err, &level) {
		t.Errorf("CheckLevel: %v", err)
	}
	if o := apply(t, l, op); !errors.As(o.Err, &level) {
		t.Errorf("Apply: %v", o.Err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// ExampleIncrement shows what proposes an increment, and reads its outcome.
func ExampleIncrement() {
	op, err := counter.Increment("builds", 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	cmd, err := storage.EncodeCommand(op)
	fmt.Println(cmd.Size() > 0, err)
	// Output: true <nil>
}
