package raft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The small files of a node, "vote", "snapshots" and "wal/meta", are replaced as a whole and end in a checksum:
//
//	what the file says      the rest
//	CRC32C of it, big endian   4

const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readSummed returns what a small file says; nil when there is none.
func readSummed(disk vfs.FS, path string) ([]byte, error) {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) <= sumSize {
		return nil, fmt.Errorf("%s has %d bytes; %s", path, len(data), advice)
	}
	body := data[:len(data)-sumSize]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(data[len(body):]) {
		return nil, fmt.Errorf("%s is damaged; %s", path, advice)
	}
	return body, nil
}

// replaceSummed makes a small file say something else, on stable storage; after a crash it says either.
func replaceSummed(disk vfs.FS, dir, name string, body []byte) error {
	path := disk.PathJoin(dir, name)
	f, err := disk.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	sum := crc32.Checksum(body, castagnoli)
	_, err = f.Write(binary.BigEndian.AppendUint32(body[:len(body):len(body)], sum))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := disk.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(disk, dir)
}

func exists(disk vfs.FS, path string) (bool, error) {
	_, err := disk.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func syncDir(disk vfs.FS, path string) error {
	dir, err := disk.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
