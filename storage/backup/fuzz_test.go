package backup

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
)

// FuzzManifest: whatever a manifest's file has, it is taken for the backup of exactly one name, or
// refused with a reason.
func FuzzManifest(f *testing.F) {
	n := newFakeNode()
	f.Add(proof.Unsigned(n.statement().Statement()))
	f.Add(strings.Replace(proof.Unsigned(n.statement().Statement()), "backup 1", "backup 2", 1))
	f.Add("runlog backup 1\n\n")
	f.Fuzz(func(t *testing.T, note string) {
		m, err := readNote(note)
		if err != nil {
			if !errors.Is(err, ErrManifest) && !errors.Is(err, proof.ErrBackupFormat) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		r := Open(vfs.NewMem(), "")
		if err := errors.Join(writeFile(r.fs, m.Name+manifestSuffix, []byte(note)), writeFile(r.fs, "x"+manifestSuffix, []byte(note))); err != nil {
			t.Fatal(err)
		}
		if found, err := r.Find(m.Name); err != nil || found.Note != note {
			t.Fatalf("%v, %v", found, err)
		}
		if _, err := r.Find("x"); !errors.Is(err, ErrManifest) {
			t.Fatalf("under another name: %v", err)
		}
	})
}

// FuzzJournal: what is left of a backup that was cut never hinders the next.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(journalLine("origin n1.00000001/1") + journalLine("file 000004.sst 15 "+strings.Repeat("0", 64))))
	f.Add([]byte(" crc32c \n"))
	f.Add([]byte("origin x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, n := Open(vfs.NewMem(), "dir"), newFakeNode()
		if err := errors.Join(r.fs.MkdirAll("dir", 0o755), writeFile(r.fs, r.path(incompleteFile), text)); err != nil {
			t.Fatal(err)
		}
		n.wantFiles(t, r, n.take(t, r).Manifest)
	})
}
