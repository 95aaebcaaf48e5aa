package raft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
)

// commitMark says, on stable storage and apart from the log, how far the log was once committed: a
// log that ends earlier has lost acknowledged entries (D2). It trails the log by markEvery, so it
// costs next to nothing, and what it does not cover yet is covered by nothing but the log itself.
//
//	index of a committed entry, big endian   8
//	CRC32C of it                             4
type commitMark struct {
	file  vfs.File
	index uint64
}

const (
	markSize = 12
	markFile = "commit-mark"
)

// Made tells whether Make has been called for the directory of a node.
func Made(disk vfs.FS, dir string) (bool, error) {
	made, err := exists(disk, disk.PathJoin(dir, markFile))
	if err != nil {
		return false, fmt.Errorf("raft: %w", err)
	}
	return made, nil
}

// Make makes the directory of a node, with a mark in it. A node whose directory lacks it afterwards
// has lost its log and its vote, also where it has kept neither for long.
func Make(disk vfs.FS, dir string) error {
	if err := disk.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	m, err := openMark(disk, dir)
	if err != nil {
		return err
	}
	return errors.Join(m.close(), storage.SyncDir(disk, disk.PathDir(dir)))
}

// openMark opens or makes the mark in dir.
func openMark(disk vfs.FS, dir string) (*commitMark, error) {
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
		return nil, errors.Join(fmt.Errorf("raft: commit mark %s is damaged; restore it", path), f.Close())
	}
	return &commitMark{file: f, index: binary.BigEndian.Uint64(row[:])}, nil
}

// makeMark makes it under another name first, so that a mark is there whole or not at all.
func makeMark(disk vfs.FS, dir, path string) (*commitMark, error) {
	f, err := disk.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("raft: commit mark: %w", err)
	}
	m := &commitMark{file: f}
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

// advance moves the mark to the index of an entry that is committed.
func (m *commitMark) advance(index uint64) error {
	if index <= m.index {
		return nil
	}
	return m.write(index)
}

func (m *commitMark) write(index uint64) error {
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

func (m *commitMark) close() error { return m.file.Close() }
