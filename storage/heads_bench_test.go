package storage

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"runlog/proto/contract"
)

// headRuns is how many runs a store of BenchmarkHeads has.
const headRuns = 100_000

// BenchmarkHeads measures what the bucket in keys costs where runs are read by their numbers, over
// runs that are spread over so many scopes: reading the heads of all runs, and those of one group
// (docs/adr/0020-buckets.md). Filling the store reports what Pebble wrote for each byte that it was
// given, and the time of an append.
func BenchmarkHeads(b *testing.B) {
	for _, scopes := range []int{1, 16, 1000, headRuns} {
		b.Run(fmt.Sprintf("scopes=%d", scopes), func(b *testing.B) {
			s := headsBed(b, scopes)
			v, err := s.Heads()
			if err != nil {
				b.Fatal(err)
			}
			all := v.Changed
			b.Run("all", func(b *testing.B) {
				defer cpu(b)()
				for b.Loop() {
					readHeads(b, v, all)
				}
			})
			b.Run("group", func(b *testing.B) {
				defer cpu(b)()
				for i := 0; b.Loop(); i++ {
					at := i * 7919 % len(all)
					readHeads(b, v, all[at:at+1])
				}
			})
			if err := v.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// cpu reports the processor time of an operation: other work on the machine does not count.
func cpu(b *testing.B) func() {
	used := func() int64 {
		var r unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	begin := used()
	return func() { b.ReportMetric(float64(used()-begin)/float64(b.N), "cpu-ns/op") }
}

func readHeads(b *testing.B, v *Heads, groups []uint64) {
	n := 0
	for runs, err := range v.Groups(groups) {
		if err != nil {
			b.Fatal(err)
		}
		n += len(runs)
	}
	if n == 0 {
		b.Fatal("no runs")
	}
}

func headsBed(b *testing.B, scopes int) *Store {
	b.Helper()
	s, err := Open(Options{Dir: b.TempDir(), Cluster: fuzzCluster, MemTableBytes: 4 << 20, Fail: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	const each = 500 // appends a proposal
	for run := 0; run < headRuns; run += each {
		p := NewProposal(fuzzCluster, 0)
		for i := run; i < run+each; i++ {
			id := fmt.Sprintf("run-%08d", i)
			events := make([]contract.Event, 2)
			for n := range events {
				events[n] = fuzzEvent(n)
				events[n].RunID, events[n].TenantID = id, fmt.Sprint("tenant-", i*7919%scopes)
			}
			c, err := EncodeAppend(&Append{RunID: id, Events: events})
			if err != nil {
				b.Fatal(err)
			}
			p.Add(c)
		}
		if _, err := s.Apply(uint64(run/each+1), 1, p.Seal(1_893_456_000_000_000_000+int64(run))); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	m := s.db().Metrics()
	var in, out uint64
	for i := range m.Levels {
		in += m.Levels[i].TableBytesFlushed
		out += m.Levels[i].TableBytesFlushed + m.Levels[i].TableBytesCompacted
	}
	b.Logf("%d scopes: flushed %d MB, written %.2f times", scopes, in>>20, float64(out)/float64(max(in, 1)))
	return s
}
