package backup

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
)

// journal lists the complete tables of a backup, so that an interrupted backup can resume:
//
//	origin n1.5f2c8a01/1 crc32c 1a2b3c4d
//	file 000012.sst 17 5f2c… crc32c 5e6f7a8b
//
// The journal is only a hint: damaged lines and missing files are skipped.
type journal struct {
	r      *Repository
	origin string
	files  []proof.BackupFile

	mu   sync.Mutex
	file vfs.File // nil: no journal is written
}

// maxJournal bounds the bytes read from the journal.
const maxJournal = maxManifest

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openJournal reads the journal of the last backup.
func openJournal(r *Repository) (*journal, error) {
	j := &journal{r: r}
	text, err := readFile(r.fs, r.path(incompleteFile), maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		entry, whole := strings.CutSuffix(line, "\n")
		if at := strings.LastIndex(entry, " crc32c "); at < 0 || !whole || journalLine(entry[:at]) != line {
			continue
		}
		entry = entry[:strings.LastIndex(entry, " crc32c ")]
		if origin, ok := strings.CutPrefix(entry, "origin "); ok {
			j.origin, j.files = origin, nil
		} else if f, err := proof.ParseBackupFile(strings.TrimPrefix(entry, "file ")); err == nil {
			j.files = append(j.files, f)
		}
	}
	return j, nil
}

func journalLine(entry string) string {
	return fmt.Sprintf("%s crc32c %08x\n", entry, crc32.Checksum([]byte(entry), castagnoli))
}

// begin starts the journal of an origin, with its existing tables.
func (j *journal) begin(origin string) (err error) {
	var text strings.Builder
	text.WriteString(journalLine("origin " + origin))
	if origin == j.origin {
		for _, f := range j.files {
			text.WriteString(journalLine("file " + f.String()))
		}
	}
	if j.file, err = j.r.fs.Create(j.r.path(incompleteFile), vfs.WriteCategoryUnspecified); err == nil {
		_, err = j.file.Write([]byte(text.String()))
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// add notes down a file that is stored. It may be called by several at once.
func (j *journal) add(origin string, f proof.BackupFile) error {
	if !isTable(f.Name) || j.file == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write([]byte(journalLine("file " + f.String()))); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// remove is called after the manifest is stored.
func (j *journal) remove() error {
	if err := j.r.fs.Remove(j.r.path(incompleteFile)); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
