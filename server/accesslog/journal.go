package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
)

// A journal is the node's own access log: a file with the calls that are not in the replicated one
// yet (SEC-13). Each line is the CRC-32C of the entry in eight hexadecimal digits, a space, and the
// entry as JSON. A line without its checksum was being written when the node crashed: its call was
// not answered.
//
// An entry names its cluster. A directory that was copied to another cluster brings it no entries.
type journal struct {
	disk    vfs.FS
	path    string
	cluster string

	mu      sync.Mutex
	entries []*entry // of the file, the oldest first
	// file is nil while the next entry replaces the file: there is none, or it may have a torn
	// line.
	file vfs.File
	size int64 // bytes of the lines of entries
}

// maxJournal bounds the file, in bytes. Refused calls, of which a client can cause any number, get
// half of it.
const (
	maxJournal       = 4 << 20
	maxDeniedJournal = maxJournal / 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFull is why a call cannot be recorded without a leader any more.
var errFull = fmt.Errorf("the node's own access log has its maximum of %d MiB; it is emptied once the cluster takes appends again", maxJournal>>20)

// openJournal reads the entries of a file. dropped are the lines that are no entries of this
// cluster.
func openJournal(disk vfs.FS, path, cluster string) (j *journal, dropped int, err error) {
	j = &journal{disk: disk, path: path, cluster: cluster}
	text, err := storage.ReadFile(disk, path, maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return j, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("access log: %w", err)
	}
	for line := range bytes.Lines(text) {
		if e := parseLine(line); e != nil && e.Cluster == cluster {
			j.entries = append(j.entries, e)
			j.size += int64(len(line))
		} else {
			dropped++
		}
	}
	return j, dropped, nil
}

// line returns an entry as a line of the file.
func (e *entry) line() ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text), nil
}

// parseLine returns the entry of a line; nil: the line is torn or damaged.
func parseLine(line []byte) *entry {
	sum, text, _ := bytes.Cut(line, []byte(" "))
	text, whole := bytes.CutSuffix(text, []byte("\n"))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || !whole || crc32.Checksum(text, castagnoli) != uint32(want) {
		return nil
	}
	e := &entry{}
	if json.Unmarshal(text, e) != nil || e.Decision == nil {
		return nil
	}
	return e
}

// add writes an entry to stable storage, unless the file would have more bytes than most.
func (j *journal) add(e *entry, most int64) error {
	e.Cluster = j.cluster
	line, err := e.line()
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.size+int64(len(line)) > most {
		return errFull
	}
	if j.file == nil {
		err = j.rewriteLocked(line)
	} else if _, err = j.file.WriteAt(line, j.size); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		// What the file has now is not known.
		return errors.Join(fmt.Errorf("the node's own access log: %w", err), j.closeLocked())
	}
	j.entries = append(j.entries, e)
	j.size += int64(len(line))
	return nil
}

// rewriteLocked replaces the file by the lines of all entries, with a further one.
func (j *journal) rewriteLocked(last []byte) error {
	var text []byte
	for _, e := range j.entries {
		line, err := e.line()
		if err != nil {
			return err
		}
		text = append(text, line...)
	}
	err := storage.ReplaceFile(j.disk, j.path, append(text, last...), 0o600)
	if err == nil {
		j.file, err = j.disk.OpenReadWrite(j.path, vfs.WriteCategoryUnspecified)
	}
	return err
}

// from returns the entry with a number, from 0; nil: there is none yet.
func (j *journal) from(n int) *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n == len(j.entries) {
		return nil
	}
	return j.entries[n]
}

// empty reports whether there is no entry.
func (j *journal) empty() bool { return j.from(0) == nil }

// remove removes the file, if it has no more than so many entries.
func (j *journal) remove(n int) (removed bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.entries) > n {
		return false, nil
	}
	// A crash may bring the file back. Its entries are then duplicates in the replicated log.
	if err := errors.Join(j.closeLocked(), j.disk.Remove(j.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	j.entries, j.size = nil, 0
	return true, nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closeLocked()
}

func (j *journal) closeLocked() error {
	if j.file == nil {
		return nil
	}
	f := j.file
	j.file = nil
	return f.Close()
}
