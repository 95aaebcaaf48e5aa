package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

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

// ErrMark means that the commit mark is missing or damaged, in a directory with a log or a vote.
var ErrMark = errors.New("raft: the commit mark is lost")

// Made reports whether MakeMark was called for a directory: it has a mark, or a vote or a log, made
// after the mark.
func Made(disk vfs.FS, dir string) (bool, error) {
	for _, name := range []string{markFile, VoteFile, disk.PathJoin("wal", metaFile)} {
		found, err := exists(disk, disk.PathJoin(dir, name))
		if err != nil {
			return false, fmt.Errorf("raft: %w", err)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
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

// OpenMark opens the mark in dir, or makes it in a new directory. An error that wraps ErrMark means
// that RenewMark may make another, if the log is whole.
func OpenMark(disk vfs.FS, dir string) (*Mark, error) {
	path := disk.PathJoin(dir, markFile)
	found, err := exists(disk, path)
	if err == nil && !found {
		made, err := Made(disk, dir)
		if made && err == nil {
			err = storage.Damage(fmt.Errorf("%w: %s is missing", ErrMark, path))
		}
		if err != nil {
			return nil, err
		}
		return RenewMark(disk, dir)
	}
	var f vfs.File
	if err == nil {
		f, err = disk.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return nil, fmt.Errorf("raft: commit mark: %w", err)
	}
	var row [markSize]byte
	n, err := f.ReadAt(row[:], 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, errors.Join(fmt.Errorf("raft: commit mark %s: %w", path, err), f.Close())
	case n < markSize:
		err = fmt.Errorf("%w: %s has %d bytes, %d are expected", ErrMark, path, n, markSize)
		return nil, errors.Join(storage.Damage(err), f.Close())
	case binary.BigEndian.Uint32(row[8:]) != crc32.Checksum(row[:8], castagnoli):
		err = fmt.Errorf("%w: %s is damaged: its checksum does not match", ErrMark, path)
		return nil, errors.Join(storage.Damage(err), f.Close())
	}
	return &Mark{file: f, index: binary.BigEndian.Uint64(row[:])}, nil
}

// RenewMark makes or replaces the mark, under a temporary name first: a crash leaves the earlier
// mark or the new one.
func RenewMark(disk vfs.FS, dir string) (*Mark, error) {
	path := disk.PathJoin(dir, markFile)
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

// Index returns the mark; 0 if it is lost, which is a nil m.
func (m *Mark) Index() uint64 {
	if m == nil {
		return 0
	}
	return m.index
}

// Close closes the file.
func (m *Mark) Close() error { return m.file.Close() }
