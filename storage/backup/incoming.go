package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
	"runlog/proto/contract"
)

const (
	// maxWriting is how many files are hashed, written and synced concurrently: the next file
	// arrives while others wait for the disk.
	maxWriting = 3
	// maxPieces bounds the queued pieces of a file.
	maxPieces = 4
)

// writers writes files that arrive in sequence. The zero value works.
type writers struct {
	slots sync.WaitGroup
	limit chan struct{}
	count int

	mu struct {
		sync.Mutex
		err error // the first
	}
}

// incoming is a file being received: one goroutine queues its bytes, another writes them.
type incoming struct {
	path   string // while it is not whole
	left   uint64 // bytes still to come
	pieces chan []byte
	// the expected digest, after all pieces; closed without a value: discard the file
	want chan ending
}

type ending struct {
	proof.BackupFile
	stored func() error // is called once it is
}

// open begins a file of a given size. It blocks while too many files are being written.
func (w *writers) open(r *Repository, size uint64) (*incoming, error) {
	if w.limit == nil {
		w.limit = make(chan struct{}, maxWriting)
	}
	w.count++
	in := &incoming{path: r.path(incomingDir, strconv.Itoa(w.count)), left: size, pieces: make(chan []byte, maxPieces), want: make(chan ending, 1)}
	w.limit <- struct{}{}
	f, err := r.fs.Create(in.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		<-w.limit
		return nil, fmt.Errorf("backup: %w", err)
	}
	w.slots.Go(func() {
		defer func() { <-w.limit }()
		w.fail(in.receive(r, f))
	})
	return in, nil
}

func (w *writers) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err == nil {
		w.mu.err = err
	}
}

func (w *writers) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

// wait returns once all files are stored, with the first error.
func (w *writers) wait() error {
	w.slots.Wait()
	return w.failed()
}

// write queues bytes, which must not change any more; false: more bytes than announced.
func (in *incoming) write(p []byte) bool {
	if uint64(len(p)) > in.left {
		return false
	}
	in.left -= uint64(len(p))
	in.pieces <- p
	return true
}

// end sets the expected digest, and a callback for after the store; false: bytes are missing.
func (in *incoming) end(f proof.BackupFile, stored func() error) bool {
	if in.left > 0 {
		return false
	}
	in.want <- ending{f, stored}
	close(in.pieces)
	return true
}

// drop discards an unfinished file.
func (in *incoming) drop() {
	close(in.want)
	close(in.pieces)
}

// receive writes and hashes the pieces, and stores the file if its digest matches. It drains all
// pieces, also after an error.
func (in *incoming) receive(r *Repository, f vfs.File) (err error) {
	sum := sha256.New()
	for p := range in.pieces {
		if err != nil {
			continue
		}
		sum.Write(p) // first: vfs.File.Write may change its argument
		_, err = f.Write(p)
	}
	want, wanted := <-in.want
	if !wanted {
		return errors.Join(f.Close(), r.fs.Remove(in.path))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("backup: write %s: %w", in.path, err)
	}
	if is := contract.Digest(sum.Sum(nil)); is != want.SHA256 {
		return fmt.Errorf("%w: %s has SHA-256 %s, the node read %s", ErrStream, want.Name, is, want.SHA256)
	}
	path, sub := r.stored(want.SHA256)
	if err := r.fs.MkdirAll(r.path(filesDir, sub), 0o755); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := r.fs.Rename(in.path, path); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return want.stored()
}
