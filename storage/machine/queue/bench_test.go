package queue_test

import (
	"fmt"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// cycle makes proposals, each of a batch of runs: their requests, one lease of them all, their
// starts and their ends.
type cycle struct {
	b    *testing.B
	name queue.Name
}

func (c cycle) operation(op storage.Operation, err error) storage.Operation {
	c.b.Helper()
	if err != nil {
		c.b.Fatal(err)
	}
	return op
}

func (c cycle) event(runID, eventType string, fence *uint64) storage.Operation {
	c.b.Helper()
	e := storagetest.Event(runID, 0)
	e.Type, e.StepID, e.IdempotencyKey, e.KeyDerived = eventType, "", runID+eventType, false
	return c.operation(storage.AppendOperation(&storage.Append{RunID: runID, Events: []contract.Event{e}, Fence: fence}))
}

func (c cycle) add(p *storage.Proposal, ops ...storage.Operation) {
	c.b.Helper()
	command, err := storage.EncodeCommand(ops...)
	if err != nil {
		c.b.Fatal(err)
	}
	p.Add(command)
}

// proposals returns the log of runs in its order. clock rises with each.
func (c cycle) proposals(first, runs, batch int, clock int64) (log [][]byte) {
	c.b.Helper()
	fence := uint64(2) // That of each first lease.
	for end := first + runs; first < end; first += batch {
		var p [4]*storage.Proposal
		for i := range p {
			p[i] = storage.NewProposal(storagetest.Cluster, 0)
		}
		for n := first; n < first+batch; n++ {
			id := fmt.Sprintf("cycle-%07d", n)
			r := queue.RunRequest{Key: keyOf(-1 - n), Name: c.name, RunID: id}
			c.add(p[0], c.operation(queue.Check(&r)), c.event(id, contract.RunQueued, nil), c.operation(queue.Request(&r)))
			c.add(p[2], c.operation(queue.Release(&queue.LeaseRelease{RunID: id, Fence: fence, Outcome: queue.Started})),
				c.event(id, contract.RunStarted, &fence))
			c.add(p[3], c.event(id, contract.RunCompleted, &fence))
		}
		c.add(p[1], c.operation(queue.Lease(&queue.LeaseRequest{Within: c.name, Worker: "w", Max: batch})))
		for i := range p {
			clock++
			log = append(log, p[i].Seal(clock))
		}
	}
	return log
}

// BenchmarkCycle is what a run costs from its request to its end, among many runs that are ready.
func BenchmarkCycle(b *testing.B) {
	const runs = 1600
	for _, batch := range []int{1, 16} {
		b.Run(fmt.Sprintf("batches of %d", batch), func(b *testing.B) {
			l := newCrowd(b, 20_000, 100)
			c := cycle{b, queue.Name{Tenant: "tenant", Project: "project", Environment: "prod", Queue: "cycle"}}
			b.ReportAllocs()
			rounds := 0
			for b.Loop() {
				b.StopTimer()
				log := c.proposals(rounds*runs, runs, batch, l.Applied().PersistedAt)
				b.StartTimer()
				for _, entry := range log {
					outcomes, err := l.Store.Apply(l.Applied().Index+1, 1, entry)
					if err != nil {
						b.Fatal(err)
					}
					for i := range outcomes {
						if outcomes[i].Err != nil {
							b.Fatal(outcomes[i].Err)
						}
					}
				}
				rounds++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rounds*runs), "ns/run")
			b.StopTimer()
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
