package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
)

// maxManifest bounds a manifest, in bytes: one has at most 200,000 files (package proof) and less
// than 256 bytes for each.
const maxManifest = 200_000 * 256

// Manifest describes a backup.
type Manifest struct {
	proof.Backup
	// Name of the backup.
	Name string
	// Note is the manifest, word for word.
	Note string
	// Signers are the names and ids of the keys in the signature lines; none: unsigned.
	Signers []string
}

// readNote reads a manifest. Errors: ErrManifest, and proof.ErrBackupFormat.
func readNote(note string) (*Manifest, error) {
	st, signers, err := proof.Peek(note)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	b, err := proof.ParseBackup(st)
	if errors.Is(err, proof.ErrBackupFormat) {
		return nil, fmt.Errorf("%w; use a newer build", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return &Manifest{Backup: *b, Name: nameOf(b, note), Note: note, Signers: signers}, nil
}

// nameOf makes the name of a backup from its manifest.
func nameOf(b *proof.Backup, note string) string {
	sum := sha256.Sum256([]byte(note))
	return fmt.Sprintf("%s-%d-%x", time.Unix(0, b.Made).UTC().Format("20060102T150405.000Z"), b.Position, sum[:8])
}

// Signed verifies that one of the public keys has signed the manifest, and returns that key.
// Errors: those of proof.Open, and proof.ErrUnknownKey for a key of another cluster.
func (m *Manifest) Signed(publicKeys ...string) (string, error) {
	_, key, err := proof.Open(m.Note, publicKeys...)
	if err != nil {
		return "", err
	}
	if name := proof.KeyName(m.Cluster); !strings.HasPrefix(key, name+"+") {
		return "", fmt.Errorf("%w: backup of cluster %x, key of another cluster: %s", proof.ErrUnknownKey, m.Cluster, key)
	}
	return key, nil
}

// Entry is a backup of a repository, or the error of its manifest.
type Entry struct {
	Name string
	*Manifest
	Err error // ErrManifest or proof.ErrBackupFormat; then Manifest is nil
}

// List returns the backups by position, the highest last; before them those with an unreadable
// manifest. A missing directory has none.
func (r *Repository) List() ([]Entry, error) {
	names, err := r.fs.List(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	var list []Entry
	for _, file := range names {
		name, ok := strings.CutSuffix(file, manifestSuffix)
		if !ok {
			continue
		}
		m, err := r.read(name)
		if err != nil && !errors.Is(err, ErrManifest) && !errors.Is(err, proof.ErrBackupFormat) {
			return nil, err
		}
		list = append(list, Entry{name, m, err})
	}
	slices.SortFunc(list, compareEntries)
	return list, nil
}

// compareEntries compares positions: clocks may go back.
func compareEntries(a, b Entry) int {
	key := func(e Entry) []uint64 {
		if e.Manifest == nil {
			return []uint64{0}
		}
		return []uint64{1, e.Position, uint64(e.Made)}
	}
	if c := slices.Compare(key(a), key(b)); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// read reads the manifest of a name.
func (r *Repository) read(name string) (*Manifest, error) {
	text, err := readFile(r.fs, r.path(name+manifestSuffix), maxManifest)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	m, err := readNote(string(text))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case m.Name != name:
		return nil, fmt.Errorf("%s: %w: its bytes belong to the name %s: it was changed, or cut, or renamed", name, ErrManifest, m.Name)
	}
	return m, nil
}

// Find returns the backup with a name or with a unique name prefix. For an empty name it returns
// the backup with the highest position; an unreadable manifest is then an error. Errors: ErrNone,
// ErrManifest, proof.ErrBackupFormat.
func (r *Repository) Find(name string) (*Manifest, error) {
	list, err := r.List()
	if err != nil {
		return nil, err
	}
	name = strings.TrimSuffix(name, manifestSuffix)
	var found []Entry
	for _, e := range list {
		switch {
		case name == "" && e.Err != nil:
			return nil, fmt.Errorf("it may be the newest; name a backup: %w", e.Err)
		case e.Name == name:
			return e.Manifest, e.Err
		case strings.HasPrefix(e.Name, name):
			found = append(found, e)
		}
	}
	switch {
	case len(found) == 0 && name == "":
		return nil, fmt.Errorf("%w: %s has none", ErrNone, r.dir)
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %s has no backup %q", ErrNone, r.dir, name)
	case len(found) > 1 && name != "":
		return nil, fmt.Errorf("%w: %q matches %d backups", ErrNone, name, len(found))
	}
	e := found[len(found)-1]
	return e.Manifest, e.Err
}

// readFile reads at most limit+1 bytes of a file: one more than allowed shows that it is too long.
func readFile(disk vfs.FS, path string, most int64) ([]byte, error) {
	f, err := disk.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	return text, errors.Join(err, f.Close())
}
