package queue_test

import (
	"errors"
	"fmt"
	"testing"

	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// TestTooManyQueuesQUE3: a tenant has so many queues and no more, and what it has is still served.
// Another tenant has room.
func TestTooManyQueuesQUE3(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	name := func(tenant string, n int) queue.Name {
		return queue.Name{Tenant: tenant, Project: "p", Environment: "e", Queue: fmt.Sprint(n)}
	}
	for first := 0; first < queue.MaxQueues; first += 1000 {
		ops := make([]storage.Operation, 1000)
		for i := range ops {
			var err error
			if ops[i], err = queue.Put(name("full", first+i), queue.Change{}); err != nil {
				t.Fatal(err)
			}
		}
		command, err := storage.EncodeCommand(ops...)
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(command)
		if _, err := b.Store.Apply(b.Applied().Index+1, 1, p.Seal(1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name queue.Name
		full bool
	}{{name("full", 0), false}, {name("full", queue.MaxQueues), true}, {name("other", 0), false}} {
		op, err := queue.Put(x.name, queue.Change{})
		put := b.refused(1, op, err)
		op, err = queue.Check(&queue.RunRequest{Name: x.name, RunID: "run"})
		check := b.refused(1, op, err)
		for _, err := range []error{put, check} {
			if e, ok := errors.AsType[*queue.TooManyError](err); ok != x.full || ok && e.Tenant != "full" {
				t.Errorf("%v: %v", x.name, err)
			}
		}
	}
}
