package directory

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/stream"
)

// Files are what the checkpoint consists of, in the order of their names.
func (c *Checkpoint) Files() []stream.File { return slices.Clone(c.manifest.Files) }

// OpenFile opens one of the files, to be read from its begin in large pieces. It has as many bytes
// as Files says, or reading it ends in io.ErrUnexpectedEOF. It must be closed; the checkpoint may
// be closed meanwhile.
func (c *Checkpoint) OpenFile(name string) (io.ReadCloser, error) {
	i, found := c.manifest.Find(name)
	if !found {
		return nil, fmt.Errorf("%w: file %q", ErrNotInCheckpoint, name)
	}
	f, err := c.open(name)
	if err != nil {
		return nil, err
	}
	return &openedFile{File: f, left: c.manifest.Files[i].Size}, nil
}

// openedFile reads as many bytes as a file had when it was listed.
type openedFile struct {
	vfs.File
	left uint64
}

func (f *openedFile) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(p[:min(uint64(len(p)), f.left)])
	f.left -= uint64(n)
	if errors.Is(err, io.EOF) && n > 0 {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("storage: read checkpoint: %d bytes are missing: %w", f.left, stream.NoEOF(err))
	}
	return n, err
}
