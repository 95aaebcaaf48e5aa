package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
)

// The small files of a node, "vote", "snapshots" and "wal/meta", are replaced as a whole and end in
// a checksum:
//
//	what the file says      the rest
//	CRC32C of it, big endian   4

// ErrTooShort means that the log lacks entries that were once committed.
var ErrTooShort = errors.New("raft: log is too short")

// TooShort returns ErrTooShort for a log that ends before the commit mark.
func TooShort(last, mark uint64) error {
	return storage.Damage(fmt.Errorf("%w: the log ends at %d, entries up to %d were committed", ErrTooShort, last, mark))
}

// damaged marks an error of raft-wal as damage of a file, unless the disk failed.
func damaged(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) && errno != syscall.ENOENT {
		return err
	}
	return storage.Damage(err)
}

const (
	sumSize       = 4
	smallFileMode = 0o644
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ReadSummed returns the body of a small file; nil if the file does not exist.
func ReadSummed(disk vfs.FS, path string) ([]byte, error) {
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
		return nil, storage.Damage(fmt.Errorf("%s is damaged: it has %d bytes", path, len(data)))
	}
	body := data[:len(data)-sumSize]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(data[len(body):]) {
		return nil, storage.Damage(fmt.Errorf("%s is damaged: its checksum does not match", path))
	}
	return body, nil
}

// ReplaceSummed replaces a small file durably. After a crash the file has the old or the new body.
func ReplaceSummed(disk vfs.FS, dir, name string, body []byte) error {
	sum := crc32.Checksum(body, castagnoli)
	body = binary.BigEndian.AppendUint32(body[:len(body):len(body)], sum)
	return storage.ReplaceFile(disk, disk.PathJoin(dir, name), body, smallFileMode)
}

// SmallFiles are the small files of a directory.
type SmallFiles struct {
	FS  vfs.FS
	Dir string
}

// Read is ReadSummed for a file by its name.
func (f SmallFiles) Read(name string) ([]byte, error) {
	return ReadSummed(f.FS, f.FS.PathJoin(f.Dir, name))
}

// Replace is ReplaceSummed for a file by its name.
func (f SmallFiles) Replace(name string, body []byte) error {
	return ReplaceSummed(f.FS, f.Dir, name, body)
}

func exists(disk vfs.FS, path string) (bool, error) {
	_, err := disk.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
