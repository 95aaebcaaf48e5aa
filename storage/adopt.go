package storage

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/directory"
)

// AdoptDir is where Adopt finds the files of the checkpoint, below the directory of the store that
// is to be.
func AdoptDir(fs vfs.FS, dir string) string { return directory.AdoptDir(fs, dir) }

// Adopt makes a store of the cluster in opts out of the files of a checkpoint of another cluster,
// which are in AdoptDir; nothing else is in the directory. It continues where the other one was:
// everything but the cluster, its membership and the fences of runs (QUE-8) stays. The members are
// an entry of the log (Membership.Data), as of the last applied index. With held, the new cluster
// is held until a ReleaseHold.
//
// CURRENT comes last, and says that the store was installed at that index: until then the directory
// is no store, and is refused as one that has lost it. Errors: ErrPromise, ErrForeign when the
// files are of another cluster than was promised, and those of the disk. opts.Fail is called with
// errors after which Pebble cannot continue.
func Adopt(opts Options, promise Promise, members []byte, held bool) error {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return err
	}
	return directory.Adopt(opts.directory(), promise, members, held)
}
