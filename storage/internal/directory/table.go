package directory

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/files"
)

// checkTable reads every block of a table and compares it with the checksum that Pebble wrote after
// it. The sums of a checkpoint's files only tell that a receiver has what its sender read: rot that
// the sender has not met yet passes them. So each end checks a table: the sender before its first
// byte leaves, and the receiver before the store that it replaces goes.
//
// Other files pass: Pebble checks all of them when it opens the database, and the store has no blob
// files.
func checkTable(fs vfs.FS, path string) (err error) {
	if !strings.HasSuffix(path, ".sst") {
		return nil
	}
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	var defaults pebble.Options
	defaults.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), readable, defaults.MakeReaderOptions())
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	return errors.Join(r.ValidateBlockChecksums(), r.Close())
}

// damaged marks an error of Pebble by which a file of the store has rotted.
func damaged(path string, err error) error {
	if pebble.IsCorruptionError(err) {
		err = corrupt(path, err)
	}
	return err
}

// corrupt is the error of a file of the store that has rotted.
func corrupt(path string, err error) error {
	return files.Damage(fmt.Errorf("storage: corrupt file: %s: %w", path, err))
}
