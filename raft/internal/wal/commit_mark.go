package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
)

// Mark records, on stable storage outside of the log, how far the log was once committed: a log
// that ends earlier has lost acknowledged entries (D2). It trails the log by up to a second, so it
// costs next to nothing. Only the log itself covers the entries after it.
//
//	index of a committed entry, big endian   8
//	CRC32C of it                             4
type Mark struct {
	file  vfs.File
	index uint64
}

const (
	markSize = 12
	markFile = "commit-mark"
)

// HasMark reports whether MakeMark was called for a directory.
func HasMark(disk vfs.FS, dir string) (bool, error) {
	made, err := exists(disk, disk.PathJoin(dir, markFile))
	if err != nil {
		return false, fmt.Errorf("raft: %w", err)
	}
	return made, nil
}

// MakeMark makes a directory with a mark in it.
func MakeMark(disk vfs.FS, dir string) error {
	if err := disk.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	m, err := OpenMark(disk, dir)
	if err != nil {
		return err
	}
	return errors.Join(m.Close(), storage.SyncDir(disk, disk.PathDir(dir)))
}

// OpenMark opens or makes the mark in dir.
func OpenMark(disk vfs.FS, dir string) (*Mark, error) {
	path := disk.PathJoin(dir, markFile)
	made, err := exists(disk, path)
	if err == nil && !made {
		return makeMark(disk, dir, path)
	}
	var f vfs.File
	if err == nil {
		f, err = disk.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return nil, fmt.Errorf("raft: commit mark: %w", err)
	}
	var row [markSize]byte
	if _, err := f.ReadAt(row[:], 0); err != nil {
		return nil, errors.Join(fmt.Errorf("raft: commit mark %s: %w", path, err), f.Close())
	}
	if binary.BigEndian.Uint32(row[8:]) != crc32.Checksum(row[:8], castagnoli) {
		return nil, errors.Join(fmt.Errorf("raft: commit mark %s is damaged; %s", path, Advice), f.Close())
	}
	return &Mark{file: f, index: binary.BigEndian.Uint64(row[:])}, nil
}

// makeMark creates the mark under a temporary name first: a crash leaves a whole mark or none.
func makeMark(disk vfs.FS, dir, path string) (*Mark, error) {
	f, err := disk.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("raft: commit mark: %w", err)
	}
	m := &Mark{file: f}
	err = m.write(0)
	if err == nil {
		err = disk.Rename(path+".new", path)
	}
	if err == nil {
		err = storage.SyncDir(disk, dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("raft: commit mark: %w", err), f.Close())
	}
	return m, nil
}

// Advance moves the mark to the index of an entry that is committed.
func (m *Mark) Advance(index uint64) error {
	if index <= m.index {
		return nil
	}
	return m.write(index)
}

func (m *Mark) write(index uint64) error {
	row := binary.BigEndian.AppendUint64(nil, index)
	row = binary.BigEndian.AppendUint32(row, crc32.Checksum(row, castagnoli))
	if _, err := m.file.WriteAt(row, 0); err != nil {
		return fmt.Errorf("raft: write commit mark: %w", err)
	}
	if err := m.file.Sync(); err != nil {
		return fmt.Errorf("raft: write commit mark: %w", err)
	}
	m.index = index
	return nil
}

// Index returns the mark.
func (m *Mark) Index() uint64 { return m.index }

// Close closes the file.
func (m *Mark) Close() error { return m.file.Close() }
