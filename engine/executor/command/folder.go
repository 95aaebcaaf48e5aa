package command

import (
	"errors"
	"os"
	"path/filepath"
)

// lockFile is in the folder of each attempt. Its worker holds a lock on it, which ends with the
// worker.
const lockFile = "runlog-step.lock"

// newFolder makes the folder of an attempt. remove removes it.
func newFolder(dir string) (folder string, remove func(), err error) {
	if folder, err = os.MkdirTemp(dir, "step-*"); err != nil {
		return "", nil, err
	}
	held, err := os.CreateTemp(folder, "lock-*")
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(folder))
	}
	remove = func() { _, _ = os.RemoveAll(folder), held.Close() }
	if !lock(held) {
		err = errors.New("the file system has no locks")
	} else {
		// The file has its name once it is locked, so that nothing takes the worker for dead.
		err = os.Rename(held.Name(), filepath.Join(folder, lockFile))
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return folder, remove, nil
}

// RemoveLeft removes the folders that killed workers have left below a TempDir, with the files of
// secrets. Those of living workers stay.
func RemoveLeft(dir string) error {
	if dir == "" {
		dir = os.TempDir()
	}
	names, err := filepath.Glob(filepath.Join(dir, "step-*", lockFile))
	if err != nil {
		return err
	}
	var faults []error
	for _, name := range names {
		f, err := openLock(name)
		if err != nil {
			continue // Its worker has removed it, or it is another user's.
		}
		if lock(f) {
			faults = append(faults, os.RemoveAll(filepath.Dir(name)))
		}
		_ = f.Close()
	}
	return errors.Join(faults...)
}
