package storage_test

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/metadata"
	"runlog/storage/storagetest"
)

// packedLog is a log of runs, whose events come one by one and about a second apart, in proposals
// of 100 events of 100 runs. The last event of a run ends it, if ends is set.
func packedLog(b testing.TB, runs, events int, ends bool) (log [][]byte) {
	b.Helper()
	const together = 100
	clock := int64(1_770_805_800_000_000_000)
	for first := 0; first < runs; first += together {
		for n := range events {
			clock += 900_000_000 + mathrand.Int64N(200_000_000)
			p := storage.NewProposal(storagetest.Cluster, 1<<20)
			for run := first; run < min(first+together, runs); run++ {
				name := fmt.Sprintf("run-%06d", run)
				e := storagetest.Event(name, n)
				if ends && n == events-1 {
					e = endEvent(name, contract.RunFailed)
				}
				// A UUID of version 7, as producers make it.
				if _, err := rand.Read(e.EventID[:]); err != nil {
					b.Fatal(err)
				}
				binary.BigEndian.PutUint64(e.EventID[:], uint64(clock/int64(time.Millisecond))<<16|0x7000|uint64(e.EventID[7]))
				e.EventID[8] = e.EventID[8]&0x3f | 0x80
				c, err := storage.EncodeAppend(&storage.Append{RunID: name, Events: []contract.Event{e}})
				if err != nil {
					b.Fatal(err)
				}
				p.Add(c)
			}
			log = append(log, p.Seal(clock))
		}
	}
	// What is left to be packed is packed by proposals that do nothing else.
	idle, err := storage.EncodeOne(metadata.Set("nobody", "x", contract.Author{}, nil))
	if err != nil {
		b.Fatal(err)
	}
	for range runs * events / 1000 {
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(idle)
		clock++
		log = append(log, p.Seal(clock))
	}
	return log
}

// BenchmarkPackedReceipts is what applying an event costs, and what its receipt takes on the disk
// (LIFE-9), for runs of one size that have ended, or not.
func BenchmarkPackedReceipts(b *testing.B) {
	for _, events := range []int{10, 100, 1000} {
		runs := 200_000 / events
		for _, ends := range []bool{false, true} {
			b.Run(fmt.Sprintf("events=%d/ended=%t", events, ends), func(b *testing.B) {
				log := packedLog(b, runs, events, ends)
				var bytes uint64
				for b.Loop() {
					b.StopTimer()
					l := open(b, storage.Options{})
					b.StartTimer()
					for i, entry := range log {
						if _, err := l.Store.Apply(uint64(i+1), 1, entry); err != nil {
							b.Fatal(err)
						}
					}
					b.StopTimer()
					var err error
					if bytes, err = l.Store.ReceiptBytes(b.Context()); err != nil {
						b.Fatal(err)
					}
					if err := l.Close(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				perEvent(b, runs*events)
				b.ReportMetric(float64(bytes)/float64(runs*events), "bytes/receipt")
			})
		}
	}
}
