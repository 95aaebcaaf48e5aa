package backup

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// maxOrigins bounds the origins whose files are listed in the request. A cluster has fewer nodes.
const maxOrigins = 8

// Source requests a backup of a node and yields its messages (client.Client.Backup).
type Source func(*runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error]

// TakeOptions of one backup.
type TakeOptions struct {
	// Full makes the node send all files, also the stored ones.
	Full bool
	// Progress, if not nil, is called regularly, from one goroutine.
	Progress func(Progress)
}

// Taken describes a finished backup and the transferred part of it.
type Taken struct {
	*Manifest
	SentFiles, SentBytes   uint64
	KnownFiles, KnownBytes uint64
}

// Take makes a backup from a source. After an error the repository has the same backups as before;
// complete tables are kept for the next backup of the same origin. Errors: ErrBusy, ErrForeign,
// ErrStream, ErrNoRoom, proof.ErrBackupFormat, those of the source and of the disk.
func (r *Repository) Take(source Source, opts TakeOptions) (_ *Taken, err error) {
	lock, err := r.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	t := &taker{r: r, opts: opts}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	for m, err := range source(t.request()) {
		if err == nil {
			err = t.take(m)
		}
		if err != nil {
			// A write error is the cause if the stream was abandoned.
			if failed := t.settle(); failed != nil {
				err = failed
			}
			return nil, err
		}
	}
	if err := t.settle(); err != nil {
		return nil, err
	}
	return t.end()
}

// taker is one backup on its way into a repository.
type taker struct {
	r    *Repository
	opts TakeOptions

	cluster string // of the existing backups, in hexadecimal; empty: no backups
	// known has the stored files, by origin and name.
	known   map[string]map[string]proof.BackupFile
	journal *journal

	begin *runlogv1.BackupBegin     // the announced files; nil: not received yet
	file  *runlogv1.BackupFileBegin // the current file; nil: none
	// the writer of the current file; nil: the file is stored already
	in    *incoming
	files []proof.BackupFile // received files, in order
	note  string             // the manifest

	writing writers
	done    Progress
	taken   Taken
}

// prepare reads the existing backups, and makes room for the new one.
func (t *taker) prepare() error {
	r := t.r
	list, err := r.List()
	if err != nil {
		return err
	}
	err = r.fs.RemoveAll(r.path(incomingDir))
	if err == nil {
		err = errors.Join(r.fs.MkdirAll(r.path(incomingDir), 0o755), r.fs.MkdirAll(r.path(filesDir), 0o755))
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if t.journal, err = openJournal(r); err != nil {
		return err
	}
	t.known = map[string]map[string]proof.BackupFile{}
	t.know(t.journal.origin, t.journal.files)
	for _, e := range slices.Backward(list) {
		if e.Err != nil {
			continue
		}
		if t.cluster == "" {
			t.cluster = fmt.Sprintf("%x", e.Cluster)
		}
		// The newest backup of each origin has most of that origin's files.
		if known := t.known[e.Origin]; known == nil || e.Origin == t.journal.origin {
			t.know(e.Origin, e.Files)
		}
	}
	return nil
}

// know lists stored files of an origin. The first entry is the newest and stays.
func (t *taker) know(origin string, files []proof.BackupFile) {
	if origin == "" || t.known[origin] == nil && len(t.known) == maxOrigins || t.opts.Full {
		return
	}
	if t.known[origin] == nil {
		t.known[origin] = map[string]proof.BackupFile{}
	}
	for _, f := range files {
		if _, newer := t.known[origin][f.Name]; !newer && isTable(f.Name) && t.r.has(f.SHA256, f.Size) {
			t.known[origin][f.Name] = f
		}
	}
}

// isTable reports whether a file never changes under its name.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// request lists the stored files for the node.
func (t *taker) request() *runlogv1.BackupRequest {
	req := &runlogv1.BackupRequest{}
	for _, origin := range slices.Sorted(maps.Keys(t.known)) {
		k := &runlogv1.BackupKnown{Origin: origin}
		for _, name := range slices.Sorted(maps.Keys(t.known[origin])) {
			f := t.known[origin][name]
			k.Files = append(k.Files, &runlogv1.BackupFile{Name: f.Name, Size: f.Size, Sha256: f.SHA256[:]})
		}
		if len(k.Files) > 0 {
			req.Known = append(req.Known, k)
		}
	}
	return req
}

// take handles the next message. Parts come in the order of BackupResponse.
func (t *taker) take(m *runlogv1.BackupResponse) error {
	if err := t.writing.failed(); err != nil {
		return err
	}
	switch part := m.GetPart().(type) {
	case *runlogv1.BackupResponse_Begin:
		if t.begin == nil && part.Begin != nil {
			return t.takeBegin(part.Begin)
		}
	case *runlogv1.BackupResponse_File:
		if t.begin != nil && t.file == nil && t.note == "" && part.File != nil {
			return t.takeFile(part.File)
		}
	case *runlogv1.BackupResponse_Data:
		if t.in != nil {
			return t.takeData(part.Data)
		}
	case *runlogv1.BackupResponse_End:
		if t.file != nil && part.End != nil {
			return t.takeEnd(part.End)
		}
	case *runlogv1.BackupResponse_Manifest:
		if t.begin != nil && t.file == nil && t.note == "" {
			t.note = part.Manifest
			return nil
		}
	}
	return fmt.Errorf("%w: %T out of order", ErrStream, m.GetPart())
}

func (t *taker) takeBegin(b *runlogv1.BackupBegin) error {
	if t.cluster != "" && t.cluster != b.ClusterId {
		return fmt.Errorf("%w: backups in %s belong to %s, the node to %s; use another directory", ErrForeign, t.r.dir, t.cluster, b.ClusterId)
	}
	if b.KnownBytes > b.Bytes {
		return fmt.Errorf("%w: %d of %d bytes are known", ErrStream, b.KnownBytes, b.Bytes)
	}
	if err := room(t.r.fs, t.r.dir, b.Bytes-b.KnownBytes); err != nil {
		return err
	}
	t.begin, t.done = b, Progress{TotalBytes: b.Bytes, TotalFiles: b.Files}
	return t.journal.begin(b.Origin)
}

func (t *taker) takeFile(f *runlogv1.BackupFileBegin) (err error) {
	if f.Known {
		if k, there := t.known[t.begin.Origin][f.Name]; !there || k.Size != f.Size {
			return fmt.Errorf("%w: it omits %s, which is not stored", ErrStream, f.Name)
		}
	} else if t.in, err = t.writing.open(t.r, f.Size); err != nil {
		return err
	}
	t.file = f
	return nil
}

func (t *taker) takeData(data []byte) error {
	if !t.in.write(data) {
		return fmt.Errorf("%w: %s has more than its %d bytes", ErrStream, t.file.Name, t.file.Size)
	}
	t.progress(uint64(len(data)), 0)
	return nil
}

func (t *taker) progress(bytes, files uint64) {
	t.done.Bytes += bytes
	t.done.Files += files
	if t.opts.Progress != nil {
		t.opts.Progress(t.done)
	}
}

// takeEnd compares a file with the digest of the node. A sent file is written concurrently.
func (t *taker) takeEnd(e *runlogv1.BackupFile) error {
	if e.Name != t.file.Name || e.Size != t.file.Size || len(e.Sha256) != len(contract.Digest{}) {
		return fmt.Errorf("%w: %s with %d bytes ends as %s with %d", ErrStream, t.file.Name, t.file.Size, e.Name, e.Size)
	}
	f := proof.BackupFile{Name: e.Name, Size: e.Size, SHA256: contract.Digest(e.Sha256)}
	if t.in == nil {
		if t.known[t.begin.Origin][f.Name] != f {
			return fmt.Errorf("%w: it omits %s, whose stored file differs", ErrStream, f.Name)
		}
		t.taken.KnownFiles++
		t.taken.KnownBytes += f.Size
		t.progress(f.Size, 1)
	} else {
		origin := t.begin.Origin
		if !t.in.end(f, func() error { return t.journal.add(origin, f) }) {
			return fmt.Errorf("%w: %s ends before its %d bytes", ErrStream, f.Name, f.Size)
		}
		t.taken.SentFiles++
		t.taken.SentBytes += f.Size
		t.progress(0, 1)
	}
	t.files, t.file, t.in = append(t.files, f), nil, nil
	return nil
}

// settle waits for the files that are being written.
func (t *taker) settle() error {
	if t.in != nil {
		t.in.drop()
		t.in = nil
	}
	return t.writing.wait()
}

// end makes a backup from the received files.
func (t *taker) end() (*Taken, error) {
	if t.note == "" {
		return nil, fmt.Errorf("%w: it ends before its manifest", ErrStream)
	}
	m, err := readNote(t.note)
	if err != nil {
		return nil, err
	}
	if fmt.Sprintf("%x", m.Cluster) != t.begin.ClusterId || m.Origin != t.begin.Origin || !slices.Equal(m.Files, t.files) {
		return nil, fmt.Errorf("%w: its manifest lists other files than were sent", ErrStream)
	}
	if err := t.publish(m); err != nil {
		return nil, err
	}
	t.taken.Manifest = m
	return &t.taken, t.journal.remove()
}

// publish syncs the files and then writes the manifest. Stored files may come from an interrupted
// backup that did not sync them.
func (t *taker) publish(m *Manifest) error {
	r, subs := t.r, map[string]bool{}
	for _, f := range m.Files {
		_, sub := r.stored(f.SHA256)
		subs[sub] = true
	}
	for _, sub := range slices.Sorted(maps.Keys(subs)) {
		if err := syncDir(r.fs, r.path(filesDir, sub)); err != nil {
			return err
		}
	}
	if err := syncDir(r.fs, r.path(filesDir)); err != nil {
		return err
	}
	if err := syncDir(r.fs, r.dir); err != nil {
		return err
	}
	tmp := r.path(incomingDir, "manifest")
	if err := writeFile(r.fs, tmp, []byte(m.Note)); err != nil {
		return err
	}
	if err := r.fs.Rename(tmp, r.path(m.Name+manifestSuffix)); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return syncDir(r.fs, r.dir)
}

// close ends the work on files.
func (t *taker) close() error {
	err := errors.Join(t.journal.close(), t.r.fs.RemoveAll(t.r.path(incomingDir)))
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// writeFile writes a file and syncs it.
func writeFile(disk vfs.FS, path string, text []byte) error {
	f, err := disk.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	_, err = f.Write(bytes.Clone(text)) // vfs.File.Write may change its argument
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("backup: write %s: %w", path, err)
	}
	return nil
}
