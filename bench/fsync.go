package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// fsyncBytes is what one write appends: about a log entry that carries one event.
const fsyncBytes = 900

// openFsync prepares the limit fsync: append a little to a file and wait until it is durable, which is the
// least that a log does for an entry.
func (o *Options) openFsync(context.Context, *workload) ([]caller, int, func() error, error) {
	f, err := os.OpenFile(filepath.Join(o.Dir, "runlog-bench-fsync"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, nil, err
	}
	record := make([]byte, fsyncBytes)
	for i := range record {
		record[i] = byte(i)
	}
	write := func(context.Context) (int, error) {
		if _, err := f.Write(record); err != nil {
			return 0, err
		}
		return 1, datasync(f)
	}
	release := func() error { return errors.Join(f.Close(), os.Remove(f.Name())) }
	return []caller{write}, fsyncBytes, release, nil
}
