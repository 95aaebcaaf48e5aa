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
	// maxWriting is how many files are hashed, written and synced at a time, so that the next one
	// comes while one waits for the disk.
	maxWriting = 3
	// maxPieces is how many pieces of a file wait to be written.
	maxPieces = 4
)

// writers write files that come one after the other. The zero value works.
type writers struct {
	slots sync.WaitGroup
	limit chan struct{}
	count int

	mu struct {
		sync.Mutex
		err error // the first
	}
}

// incoming is a file on its way: one goroutine hands over its bytes, another writes them.
type incoming struct {
	path   string // while it is not whole
	left   uint64 // bytes that are to come
	pieces chan []byte
	// what it must be, once all pieces were handed over; closed without: it is not wanted
	want chan ending
}

type ending struct {
	proof.BackupFile
	stored func() error // is called once it is
}

// open begins a file of so many bytes, and waits while too many are being written.
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

// wait returns once all files are where they belong, with the first error.
func (w *writers) wait() error {
	w.slots.Wait()
	return w.failed()
}

// write hands bytes over, which must not be changed any more; false: they are too many.
func (in *incoming) write(p []byte) bool {
	if uint64(len(p)) > in.left {
		return false
	}
	in.left -= uint64(len(p))
	in.pieces <- p
	return true
}

// end says what the file must be, and what to do once it is stored; false: bytes are missing.
func (in *incoming) end(f proof.BackupFile, stored func() error) bool {
	if in.left > 0 {
		return false
	}
	in.want <- ending{f, stored}
	close(in.pieces)
	return true
}

// drop gives up a file that has not ended.
func (in *incoming) drop() {
	close(in.want)
	close(in.pieces)
}

// receive writes and hashes the pieces, and stores the file if it is what it must be. It takes all
// pieces, also after an error.
func (in *incoming) receive(r *Repository, f vfs.File) (err error) {
	sum := sha256.New()
	for p := range in.pieces {
		if err != nil {
			continue
		}
		sum.Write(p) // first: vfs.File.Write may change what it is given
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
		return fmt.Errorf("%w: %s came with SHA-256 %s, and the node has read %s", ErrStream, want.Name, is, want.SHA256)
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
