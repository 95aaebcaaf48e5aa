package queue_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// crowd is a store with runs that are ready in queues of one tenant.
type crowd struct {
	*storagetest.Local
	t     testing.TB
	reads int
}

func newCrowd(t testing.TB, runs, queues int) *crowd {
	t.Helper()
	c := &crowd{t: t}
	var err error
	c.Local, err = storagetest.Open(storage.Options{
		FS: vfs.NewMem(), MemTableBytes: 64 << 20, CacheBytes: 64 << 20, Machines: []storage.Machine{queue.Counting(&c.reads)},
	})
	if err != nil {
		t.Fatal(err)
	}
	const batch = 500
	for first := 0; first < runs; first += batch {
		p := storage.NewProposal(storagetest.Cluster, 0)
		for n := first; n < min(runs, first+batch); n++ {
			name := queue.Name{Tenant: "tenant", Project: "project", Environment: "prod", Queue: fmt.Sprintf("q-%05d", n%queues)}
			id := fmt.Sprintf("run-%07d", n)
			event, err := storage.AppendOperation(&storage.Append{RunID: id, Events: []contract.Event{storagetest.Event(id, 0)}})
			if err != nil {
				t.Fatal(err)
			}
			op, err := queue.Request(&queue.RunRequest{Key: keyOf(n), Name: name, RunID: id, Priority: uint32(n/queues) % 10})
			if err != nil {
				t.Fatal(err)
			}
			command, err := storage.EncodeCommand(event, op)
			if err != nil {
				t.Fatal(err)
			}
			p.Add(command)
		}
		c.apply(p)
	}
	return c
}

func (c *crowd) apply(p *storage.Proposal) []storage.Outcome {
	c.t.Helper()
	o, err := c.Store.Apply(c.Applied().Index+1, 1, p.Seal(c.Applied().PersistedAt+1))
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

// lease takes one run, and returns how many rows that has read.
func (c *crowd) lease(after queue.Name) (reads int, last queue.Name) {
	c.t.Helper()
	op, err := queue.Lease(&queue.LeaseRequest{Within: queue.Name{Tenant: "tenant"}, After: after, Worker: "w", Max: 1})
	if err != nil {
		c.t.Fatal(err)
	}
	command, err := storage.EncodeCommand(op)
	if err != nil {
		c.t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(command)
	c.reads = 0
	got, err := queue.DecodeLease(c.apply(p)[0].Answers[0].Reply)
	if err != nil || len(got.List) != 1 {
		c.t.Fatalf("%d leases, %v", len(got.List), err)
	}
	return c.reads, got.Last
}

// TestLeaseCostQUE6: a lease of one run reads no more rows among 100,000 runs in 1,000 queues than
// among twenty runs in one.
func TestLeaseCostQUE6(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	most := func(runs, queues, leases int) (most int) {
		c := newCrowd(t, runs, queues)
		var last queue.Name
		for range leases {
			var n int
			n, last = c.lease(last)
			most = max(most, n)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		return most
	}
	few, many := most(20, 1, 19), most(100_000, 1_000, 2_500)
	if few == 0 || many > few {
		t.Errorf("a lease among 100,000 runs reads %d rows, one among 20 reads %d", many, few)
	}
}

// BenchmarkLease is what a lease of one run costs among many: time, and the most rows that one has
// read.
func BenchmarkLease(b *testing.B) {
	for _, s := range [][2]int{{5_000, 10}, {100_000, 1_000}, {1_000_000, 10_000}} {
		b.Run(fmt.Sprintf("%dx%d", s[0], s[1]), func(b *testing.B) {
			c := newCrowd(b, s[0], s[1])
			var last queue.Name
			most := 0
			for n := 0; b.Loop(); n++ {
				if n == s[0] {
					b.Fatal("too few runs: lower -benchtime")
				}
				var reads int
				reads, last = c.lease(last)
				most = max(most, reads)
			}
			b.StopTimer()
			b.ReportMetric(float64(most), "rows/lease")
			if err := c.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
