package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// maxFaults bounds the listed faults of a file.
const maxFaults = 20

// Report is the result of verifying a file.
type Report struct {
	Manifest Manifest
	// Events that were read.
	Events uint64
	// Links is the number of records that follow their predecessor in the run, which is in the file
	// too, or that begin their run.
	Links uint64
	// Faults are the first faults, each with its line or row. None: the file is the cluster's
	// export.
	Faults []string
	// More is the number of further faults.
	More int
	// Unsigned is why no public key vouches for the manifest: proof.ErrUnsigned,
	// proof.ErrUnknownKey (a key rotation explains it), proof.ErrSignature (nothing explains it),
	// or the error of a note; nil: one key does, or none was given.
	Unsigned error
}

func (r *Report) fault(format string, args ...any) {
	if len(r.Faults) == maxFaults {
		r.More++
		return
	}
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

// Verify reads a file and compares it with its manifest. It compares the digests of each record
// with its fields, the records of a run with each other, and all records with the window, the
// filter, the count and the digest of the cluster's statement. If there are public keys, one of
// them must have signed that.
//
// Faults of the file and of its signature are in the report. Errors are those of reading the file,
// and the context's.
func Verify(ctx context.Context, f Format, file io.ReaderAt, size int64, keys ...string) (*Report, error) {
	return verifyFile(ctx, f, file, size, "", keys)
}

// VerifyBeside is Verify for a file that has its manifest in another file, with the content of that
// one.
func VerifyBeside(ctx context.Context, f Format, file io.ReaderAt, size int64, manifest string, keys ...string) (*Report, error) {
	if manifest == "" {
		return &Report{Faults: []string{"the manifest is empty"}}, nil
	}
	return verifyFile(ctx, f, file, size, manifest, keys)
}

func verifyFile(ctx context.Context, f Format, file io.ReaderAt, size int64, beside string, keys []string) (*Report, error) {
	report := &Report{}
	src, note, err := open(f, file, size, beside)
	if err == nil {
		report.Manifest, report.Unsigned, err = readManifest(note, keys)
	}
	if err == nil {
		err = verify(ctx, src, int(min(pieceBytes, size+1)), report)
	}
	if errors.Is(err, errFile) {
		report.fault("%v", err)
		err = nil
	}
	return report, err
}

// verify runs three concurrent stages: one goroutine reads pieces, some parse and hash records, and
// this one follows the records in order. There are as many pieces in flight as batches; texts are
// read in pieces of a fixed size.
func verify(ctx context.Context, src source, piece int, report *Report) error {
	workers := runtime.GOMAXPROCS(0)
	batches := 2*workers + 2
	free, work, ordered := make(chan *batch, batches), make(chan *batch, batches), make(chan *batch, batches)
	for range batches {
		free <- &batch{raw: make([]byte, 0, piece), parsed: make(chan struct{}, 1)}
	}
	ctx, stop := context.WithCancel(ctx)
	var joined sync.WaitGroup
	defer joined.Wait()
	defer stop()
	joined.Go(func() {
		defer close(work)
		defer close(ordered)
		read(ctx, src, free, work, ordered)
	})
	for range workers {
		joined.Go(func() {
			for b := range work {
				b.check(src)
				b.parsed <- struct{}{}
			}
		})
	}
	f := newFollower(report, src.unit())
	for b := range ordered {
		<-b.parsed
		for i := range b.records {
			if !f.record(&b.records[i]) {
				return nil
			}
		}
		if b.err != nil {
			return b.err
		}
		free <- b
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.end()
	return nil
}

// read passes the pieces of a file to the workers and, in the same order, to the follower.
func read(ctx context.Context, src source, free <-chan *batch, work, ordered chan<- *batch) {
	for {
		var b *batch
		select {
		case b = <-free:
		case <-ctx.Done():
			return
		}
		b.records = b.records[:0]
		if b.err = src.next(b); errors.Is(b.err, io.EOF) {
			return
		}
		failed := b.err != nil
		if failed {
			b.raw, b.records = b.raw[:0], b.records[:0]
		}
		// Neither blocks: there are no more batches than room in the channels.
		ordered <- b
		work <- b
		if failed {
			return
		}
	}
}

// check makes records of a piece, and compares each record's digests with its fields.
func (b *batch) check(src source) {
	src.parse(b)
	for i := range b.records {
		c := &b.records[i]
		if c.fault != "" {
			return
		}
		switch payload, record := c.Digests(c.PayloadSalt, c.AppendedBy, c.Original); {
		case payload != c.PayloadDigest:
			c.wrong = "payloadDigest is not that of the payload and its salt: one of them was changed"
		case record != c.RecordDigest:
			c.wrong = "recordDigest is not that of the event: it was changed, or appendedBy, or appendedByTokenId, or what inherited says, or a field from eventId to contractVersion"
		}
	}
}
