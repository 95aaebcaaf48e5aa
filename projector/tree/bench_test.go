package tree_test

import (
	"testing"

	"runlog/projector/tree"
	"runlog/proto/contract"
	"runlog/storage"
)

// BenchmarkFold folds commits of three records, with a write for each 4,096 records, and measures
// what the tables take on disk. The chain digests are there.
func BenchmarkFold(b *testing.B) {
	const records, each = 3, 4096
	db := openDB(b)
	defer db.Close()
	var f tree.Folder
	x := newTx(db)
	c := &storage.Commit{Records: make([]storage.Record, records)}
	for i := range c.Records {
		c.Records[i] = storage.Record{Recorded: contract.Recorded{ChainDigest: digest(i)}}
	}
	write := func() {
		if err := f.Write(x); err != nil {
			b.Fatal(err)
		}
		if err := x.apply(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for n := 0; n < b.N; n += records {
		c.Position++
		if err := f.Fold(x, c); err != nil {
			b.Fatal(err)
		}
		if n%each < records {
			write()
		}
	}
	write()
	b.StopTimer()
	if err := db.Compact(b.Context(), []byte{0}, []byte{255}, false); err != nil {
		b.Fatal(err)
	}
	bytes, err := db.EstimateDiskUsage([]byte{0}, []byte{255})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(bytes)/float64(b.N), "disk-B/leaf")
}
