package raft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// commitMark says, on stable storage and apart from the log, how far the log was once committed: a log that
// ends earlier has lost acknowledged entries (D2). It trails the log by markEvery, so it costs next to
// nothing, and what it does not cover yet is covered by nothing but the log itself.
//
//	index of a committed entry, big endian   8
//	CRC32C of it                             4
type commitMark struct {
	file  *os.File
	index uint64
}

const (
	markSize = 12
	markFile = "commit-mark"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Made tells whether Make has been called for the directory of a node.
func Made(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, markFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("raft: %w", err)
	}
	return true, nil
}

// Make makes the directory of a node, with a mark in it. A node whose directory lacks it afterwards has lost its log and
// its vote, also where it has kept neither for long.
func Make(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	m, err := openMark(dir)
	if err != nil {
		return err
	}
	return errors.Join(m.close(), syncDir(filepath.Dir(dir)))
}

// openMark opens or makes the mark in dir.
func openMark(dir string) (*commitMark, error) {
	path := filepath.Join(dir, markFile)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return makeMark(dir, path)
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
func makeMark(dir, path string) (*commitMark, error) {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("raft: commit mark: %w", err)
	}
	m := &commitMark{file: f}
	err = m.write(0)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDir(dir)
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

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
