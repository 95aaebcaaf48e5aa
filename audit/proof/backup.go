package proof

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"runlog/proto/contract"
)

const (
	// BackupTitle is the title of a backup's statement.
	BackupTitle  = "runlog backup 1"
	backupTitles = "runlog backup "
	// maxBackupFile times maxBackupFiles is a size that an int64 holds. A database of 10 TB has
	// fewer files, and smaller ones.
	maxBackupFile  = 1 << 44
	maxBackupFiles = 200_000
)

// ErrBackupFormat means that a backup's statement has a version that this build does not know.
var ErrBackupFormat = errors.New("proof: backup of another format")

var (
	backupOriginRE = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}/[1-9][0-9]{0,18}$`)
	// backupNameRE matches names of files directly in a directory.
	backupNameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
)

// Backup is a node's statement about a backup: its position and its files.
type Backup struct {
	// Format of the files: that of the node's data directory.
	Format  uint64
	Cluster [16]byte
	// Node is the name of the node. Origin names its database: the Raft ID, a slash, and the number
	// of the database. Files of one origin with the same name are the same file.
	Node, Origin string
	// Version of the build.
	Version string
	// Made is the node's clock, in nanoseconds since 1970.
	Made int64
	// Position is the last log entry in the backup, Term that entry's term, and RollingHash the
	// hash over all entries up to it (docs/formats.md).
	Position, Term uint64
	RollingHash    contract.Digest
	// CompleteThrough is the time at or before which no event will ever be stamped again, in
	// nanoseconds since 1970: the last persistedAt.
	CompleteThrough int64
	Runs, Events    uint64
	// Files, in ascending order of their names.
	Files []BackupFile
}

// BackupFile is a file of a backup.
type BackupFile struct {
	Name   string
	Size   uint64 // bytes
	SHA256 contract.Digest
}

// Bytes is the size of all files.
func (b *Backup) Bytes() (n uint64) {
	for _, f := range b.Files {
		n += f.Size
	}
	return n
}

// Statement returns it as a node signs it.
func (b *Backup) Statement() *Statement {
	s := &Statement{Title: BackupTitle}
	s.Add("format", fmt.Sprint(b.Format)).Add("cluster", fmt.Sprintf("%x", b.Cluster[:]))
	s.Add("node", Quote(b.Node)).Add("origin", b.Origin).Add("version", Quote(b.Version)).Add("made", FormatTime(b.Made))
	s.Add("position", fmt.Sprint(b.Position)).Add("term", fmt.Sprint(b.Term)).Add("rolling-hash", b.RollingHash.String())
	s.Add("complete-through", FormatTime(b.CompleteThrough)).Add("runs", fmt.Sprint(b.Runs)).Add("events", fmt.Sprint(b.Events))
	for _, f := range b.Files {
		s.Add("file", f.String())
	}
	return s
}

// ParseBackup reads a backup's statement. Errors are ErrBackupFormat and ErrStatement.
func ParseBackup(s *Statement) (*Backup, error) {
	if strings.HasPrefix(s.Title, backupTitles) && s.Title != BackupTitle {
		return nil, fmt.Errorf("%w: its statement is %q, and this build knows %q", ErrBackupFormat, s.Title, BackupTitle)
	}
	b := &Backup{}
	err := s.Expect(BackupTitle)
	for _, step := range []func() error{
		func() (err error) { b.Format, err = s.TakeNumber("format"); return err },
		func() error { return s.takeHex("cluster", b.Cluster[:]) },
		func() (err error) { b.Node, err = s.TakeText("node"); return err },
		func() (err error) { b.Origin, err = s.takeMatch("origin", backupOriginRE); return err },
		func() (err error) { b.Version, err = s.TakeText("version"); return err },
		func() (err error) { b.Made, err = s.TakeTime("made"); return err },
		func() (err error) { b.Position, err = s.TakeNumber("position"); return err },
		func() (err error) { b.Term, err = s.TakeNumber("term"); return err },
		func() error { return s.takeHex("rolling-hash", b.RollingHash[:]) },
		func() (err error) { b.CompleteThrough, err = s.TakeTime("complete-through"); return err },
		func() (err error) { b.Runs, err = s.TakeNumber("runs"); return err },
		func() (err error) { b.Events, err = s.TakeNumber("events"); return err },
		func() error { return b.takeFiles(s) },
		s.End,
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (s *Statement) takeMatch(name string, form *regexp.Regexp) (string, error) {
	text, err := s.Take(name)
	if err == nil && !form.MatchString(text) {
		err = fmt.Errorf("%w: %s %q", ErrStatement, name, text)
	}
	return text, err
}

func (b *Backup) takeFiles(s *Statement) error {
	for s.Has("file") {
		text, err := s.Take("file")
		if err != nil {
			return err
		}
		f, err := ParseBackupFile(text)
		if err != nil {
			return err
		}
		// Sorted, so that no name occurs twice.
		if n := len(b.Files); n > 0 && b.Files[n-1].Name >= f.Name {
			return fmt.Errorf("%w: file %q after %q", ErrStatement, f.Name, b.Files[n-1].Name)
		}
		b.Files = append(b.Files, f)
	}
	if len(b.Files) == 0 || len(b.Files) > maxBackupFiles {
		return fmt.Errorf("%w: %d files, where 1 to %d can be", ErrStatement, len(b.Files), maxBackupFiles)
	}
	return nil
}

// String is the value of a line "file": the name, the size and the digest, with a blank between
// them.
func (f BackupFile) String() string { return fmt.Sprintf("%s %d %s", f.Name, f.Size, f.SHA256) }

// ParseBackupFile parses the output of String. Errors are ErrStatement.
func ParseBackupFile(text string) (f BackupFile, err error) {
	parts := strings.Split(text, " ")
	if len(parts) == 3 {
		f.Name = parts[0]
		f.Size, err = strconv.ParseUint(parts[1], 10, 64)
	}
	if len(parts) != 3 || err != nil || strconv.FormatUint(f.Size, 10) != parts[1] || f.Size > maxBackupFile || !backupNameRE.MatchString(f.Name) {
		return BackupFile{}, fmt.Errorf("%w: file %q is not a name, a size in bytes and a digest", ErrStatement, text)
	}
	digest := &Statement{lines: []line{{"file", parts[2]}}}
	return f, digest.takeHex("file", f.SHA256[:])
}
