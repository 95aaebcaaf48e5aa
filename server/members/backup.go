package members

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/storage"
)

const (
	// MaxBackups limits the concurrent backups of a node: each reads the whole store, and holds the
	// disk space of its files until it ends.
	MaxBackups = 2
	// backupDelay is the retry delay for a caller whose backup was refused.
	backupDelay = 10 * time.Second
	// backupPiece is the size of a piece of a file in one message, in bytes. backupPieces is the
	// length of the send queue.
	backupPiece  = 1 << 20
	backupPieces = 4
	// maxKnownFiles limits the files of earlier backups that a caller may list, in all.
	maxKnownFiles = 400_000
)

// Backup streams a checkpoint of this node's own store, whatever the node's role. The node
// continues to apply entries meanwhile. One goroutine reads and hashes, another sends.
func (s *Service) Backup(req *runlogv1.BackupRequest, stream grpc.ServerStreamingServer[runlogv1.BackupResponse]) error {
	ctx, cancel := s.watching(stream.Context())
	defer cancel()
	b := &backupStream{s: s}
	return b.run(ctx, req, stream.Send)
}

// backupStream is one backup in progress.
type backupStream struct {
	s     *Service
	out   *sendQueue
	known map[string]*runlogv1.BackupFile // the caller's files of this origin, by name
	made  proof.Backup
}

// watching returns the context of a backup, which also ends with the node.
func (s *Service) watching(stream context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(stream)
	forget := context.AfterFunc(s.opts.Stopping, func() { cancel(errBackupStopped) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

var errBackupStopped = &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping; back up another node"}

func (b *backupStream) run(ctx context.Context, req *runlogv1.BackupRequest, send func(*runlogv1.BackupResponse) error) (err error) {
	if err := checkKnown(req); err != nil {
		return err
	}
	if b.s.backups.Add(1) > MaxBackups {
		b.s.backups.Add(-1)
		return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: backupDelay,
			Message: fmt.Sprintf("the node already makes %d backups, its maximum", MaxBackups)}
	}
	defer b.s.backups.Add(-1)
	checkpoint, err := b.s.opts.Store.Checkpoint()
	if err != nil {
		return err
	}
	defer func() {
		if failed := checkpoint.Close(); failed != nil {
			b.s.opts.Logger.Warn("cannot remove files of a backup", "index", checkpoint.Applied.Index, "err", failed)
		}
	}()
	began := time.Now()
	b.describe(checkpoint)
	b.out = newSendQueue(ctx, b.s, send)
	err = b.send(ctx, checkpoint, req)
	if err = errors.Join(err, b.out.end(err)); err != nil {
		if errors.Is(context.Cause(ctx), errBackupStopped) {
			err = errBackupStopped
		}
		b.s.opts.Logger.Info("backup ended early", "position", b.made.Position, "err", err)
		return err
	}
	b.s.opts.Logger.Info("backup made", "position", b.made.Position, "files", len(b.made.Files), "bytes", b.made.Bytes(),
		"seconds", time.Since(began).Seconds())
	return nil
}

// checkKnown validates the caller's list of earlier backups.
func checkKnown(req *runlogv1.BackupRequest) error {
	count := 0
	for i, k := range req.Known {
		if count += len(k.Files); count > maxKnownFiles {
			return rpc.Invalid("known", fmt.Sprintf("has more than %d files: leave out those of older backups", maxKnownFiles))
		}
		for j, f := range k.Files {
			if len(f.Sha256) != sha256.Size {
				return rpc.Invalid(fmt.Sprintf("known[%d].files[%d].sha256", i, j), fmt.Sprintf("has %d bytes, and must have %d", len(f.Sha256), sha256.Size))
			}
		}
	}
	return nil
}

// describe fills in the manifest's facts about the checkpoint.
func (b *backupStream) describe(c *storage.Checkpoint) {
	me, a := b.s.opts.Cluster.Identity(), &c.Applied
	id, _ := me.Cluster() // Validated when the node started.
	b.made = proof.Backup{
		Format: uint64(b.s.opts.Format), Cluster: id, Node: me.NodeID, Origin: fmt.Sprintf("%s/%d", me.RaftID(), c.Database), Version: b.s.opts.Version,
		Made: b.s.opts.Clock().UnixNano(), Position: a.Index, Term: a.Term, RollingHash: a.RollingHash,
		CompleteThrough: a.PersistedAt, Runs: a.Runs(), Events: a.Events,
	}
}

// send sends all files and the manifest.
func (b *backupStream) send(ctx context.Context, c *storage.Checkpoint, req *runlogv1.BackupRequest) error {
	b.known = map[string]*runlogv1.BackupFile{}
	for _, k := range req.Known {
		if k.Origin == b.made.Origin {
			maps.Insert(b.known, byName(k.Files))
		}
	}
	files := c.Files()
	if err := b.out.put(b.begin(files)); err != nil {
		return err
	}
	for _, f := range files {
		if err := b.file(c, f); err != nil {
			return err
		}
	}
	note, _, err := b.s.opts.Sign(ctx, b.made.Statement())
	if err != nil {
		return err
	}
	return b.out.put(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Manifest{Manifest: note}})
}

func byName(files []*runlogv1.BackupFile) func(yield func(string, *runlogv1.BackupFile) bool) {
	return func(yield func(string, *runlogv1.BackupFile) bool) {
		for _, f := range files {
			if !yield(f.Name, f) {
				return
			}
		}
	}
}

// begin sends the announcement of the backup.
func (b *backupStream) begin(files []storage.CheckpointFile) *runlogv1.BackupResponse {
	begin := &runlogv1.BackupBegin{Origin: b.made.Origin, Files: uint64(len(files)), ClusterId: fmt.Sprintf("%x", b.made.Cluster[:])}
	for _, f := range files {
		begin.Bytes += f.Size
		if b.has(f) != nil {
			begin.KnownBytes += f.Size
		}
	}
	return &runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Begin{Begin: begin}}
}

// has returns the caller's own file of this name, or nil if it has none of at least this size. Only
// tables keep their content under one name: Pebble appends to other files.
func (b *backupStream) has(f storage.CheckpointFile) *runlogv1.BackupFile {
	k := b.known[f.Name]
	if k == nil || k.Size != f.Size || !strings.HasSuffix(f.Name, ".sst") && !strings.HasSuffix(f.Name, ".blob") {
		return nil
	}
	return k
}

// file reads and hashes a file, and sends it if the caller does not have it.
func (b *backupStream) file(c *storage.Checkpoint, f storage.CheckpointFile) (err error) {
	known := b.has(f)
	err = b.out.put(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_File{
		File: &runlogv1.BackupFileBegin{Name: f.Name, Size: f.Size, Known: known != nil}}})
	if err != nil {
		return err
	}
	in, err := c.OpenFile(f.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	sum := sha256.New()
	for left := f.Size; left > 0; {
		piece := b.out.piece()[:min(left, backupPiece)]
		if _, err := io.ReadFull(in, piece); err != nil {
			return fmt.Errorf("read %s: %w", f.Name, err)
		}
		left -= uint64(len(piece))
		sum.Write(piece)
		if known != nil {
			b.out.reuse(piece)
			err = b.out.alive()
		} else {
			err = b.out.putPiece(piece)
		}
		if err != nil {
			return err
		}
	}
	is := proof.BackupFile{Name: f.Name, Size: f.Size, SHA256: contract.Digest(sum.Sum(nil))}
	if known != nil && is.SHA256 != contract.Digest(known.Sha256) {
		return b.changed(is, known)
	}
	b.made.Files = append(b.made.Files, is)
	return b.out.put(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_End{
		End: &runlogv1.BackupFile{Name: is.Name, Size: is.Size, Sha256: is.SHA256[:]}}})
}

// changed returns the error of a damaged file, on the node's disk or on the caller's.
func (b *backupStream) changed(is proof.BackupFile, was *runlogv1.BackupFile) error {
	b.s.opts.Logger.Error("file checksum differs from the earlier backup", "file", is.Name, "origin", b.made.Origin,
		"sha256", is.SHA256.String(), "was", fmt.Sprintf("%x", was.Sha256))
	return &contract.Error{Reason: contract.ReasonFileChanged,
		Message: rpc.Helpful(contract.ReasonFileChanged, fmt.Sprintf("%s of node %s has SHA-256 %s, and an earlier backup has it with %x",
			is.Name, b.made.Node, is.SHA256, was.Sha256)),
		Metadata: map[string]string{"node_id": b.made.Node, "file": is.Name}}
}
