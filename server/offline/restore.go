package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/raft"
	"runlog/server/cluster"
	"runlog/server/datadir"
	"runlog/storage"
	"runlog/storage/backup"
	"runlog/storage/machine"
)

// ErrNotEmpty means that the target directory of a restore is not empty.
var ErrNotEmpty = errors.New("server: the data directory is not empty")

// ErrNotReplaceable means that the target directory of a restore cannot be replaced by renaming.
var ErrNotReplaceable = errors.New("server: the data directory cannot be replaced by the restored one")

// ErrBackupFormat means that a backup has another data format than this build.
var ErrBackupFormat = errors.New("server: the backup has data of another format")

// RestoreOptions name the backup and the target of a restore.
type RestoreOptions struct {
	Options
	Repository *backup.Repository
	// Backup is the name of the backup, or a prefix of it; empty: the backup with the highest
	// position.
	Backup string
	// PublicKeys: if it is not empty, one of the keys must have signed the backup.
	PublicKeys []string
	// StartPaused holds the new cluster: it leases no run and delivers no event until an operator
	// releases it.
	StartPaused bool
	// Progress, if not nil, is called during the verification and then during the copy.
	Progress func(step string, p backup.Progress)
}

// Restored describes a node that was made from a backup and has not started yet.
type Restored struct {
	NodeID, ClusterID string
	Backup            *backup.Manifest
	// PublicKey is the key that signed the backup; empty: RestoreOptions.PublicKeys was empty.
	PublicKey string
}

// restoringSuffix is appended to the name of a data directory until the restore is complete.
const restoringSuffix = ".restoring"

// Restore makes the data directory of a node that continues where a backup ends, as the only member
// of a new cluster. It verifies the backup before it writes anything. The directory gets its name
// last, so that an interrupted restore leaves nothing that a node could serve. Nodes of the old
// cluster do not belong to the new one.
func Restore(ctx context.Context, opts RestoreOptions) (_ *Restored, err error) {
	opts.EnsureDefaults()
	if fault := cluster.NodeIDFault(opts.NodeID); opts.NodeID != "" && fault != "" {
		return nil, fmt.Errorf("--node-id %q %s", opts.NodeID, fault)
	}
	// The path must be absolute: with "." the sibling directory would lie inside the target.
	target, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	r := &restore{ctx: ctx, opts: &opts, target: target}
	// A symbolic link to another disk stays a link.
	if disk, err := filepath.EvalSymlinks(r.target); err == nil {
		r.target = disk
	}
	if err := errors.Join(r.choose(), r.vacant()); err != nil {
		return nil, err
	}
	if err := r.replaceable(); err != nil {
		return nil, err
	}
	if err := r.verify(); err != nil {
		return nil, err
	}
	if err := r.make(); err != nil {
		return nil, err
	}
	return &r.done, nil
}

type restore struct {
	ctx    context.Context
	opts   *RestoreOptions
	target string
	dir    *datadir.Dir // under its temporary name
	done   Restored
}

// choose finds the backup and checks its format and its signature.
func (r *restore) choose() (err error) {
	if r.done.Backup, err = r.opts.Repository.Find(r.opts.Backup); err != nil {
		return err
	}
	if m := r.done.Backup; m.Format != datadir.Format {
		return fmt.Errorf("%w: %s has %d, and this build knows %d; restore it with the build that made it, %s", ErrBackupFormat, m.Name, m.Format, datadir.Format, m.Version)
	}
	if len(r.opts.PublicKeys) > 0 {
		if r.done.PublicKey, err = r.done.Backup.Signed(r.opts.PublicKeys...); err != nil {
			return fmt.Errorf("%s: %w", r.done.Backup.Name, err)
		}
	}
	return nil
}

// vacant refuses a target that is not empty.
func (r *restore) vacant() error {
	names, err := os.ReadDir(r.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data directory: %w", err)
	case len(names) > 0:
		return fmt.Errorf("%w: %s has %q and more; name one that does not exist", ErrNotEmpty, r.target, names[0].Name())
	}
	return nil
}

// replaceable refuses an empty target that cannot be replaced at the end: a mount point, or the
// working directory of the caller. To find out, it renames the target and renames it back.
func (r *restore) replaceable() error {
	is, err := os.Stat(r.target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if here, err := os.Stat("."); err == nil && os.SameFile(here, is) {
		return fmt.Errorf("%w: it is the working directory, which would be gone; call this from elsewhere, or name another", ErrNotReplaceable)
	}
	aside := r.target + restoringSuffix + ".aside"
	if err := os.Rename(r.target, aside); err != nil {
		return r.notReplaceable(err)
	}
	if err := os.Rename(aside, r.target); err != nil {
		return fmt.Errorf("data directory: it was moved away and cannot be moved back: %w", err)
	}
	return nil
}

func (r *restore) notReplaceable(err error) error {
	return fmt.Errorf("%w: %s (where a disk is mounted there, name a directory below it): %w", ErrNotReplaceable, r.target, err)
}

// verify reads the whole backup.
func (r *restore) verify() error {
	parent := filepath.Dir(r.target)
	for {
		if _, err := os.Stat(parent); err == nil || parent == filepath.Dir(parent) {
			break
		}
		parent = filepath.Dir(parent)
	}
	if err := r.done.Backup.Room(vfs.Default, parent); err != nil {
		return err
	}
	if err := r.opts.Repository.Verify(r.ctx, r.done.Backup, r.progress("verifying")); err != nil {
		return fmt.Errorf("%s: %w", r.done.Backup.Name, err)
	}
	return nil
}

func (r *restore) progress(step string) func(backup.Progress) {
	return func(p backup.Progress) {
		if r.opts.Progress != nil {
			r.opts.Progress(step, p)
		}
	}
}

// make makes the directory under a temporary name and renames it when it is complete. After an
// error it removes the directory.
func (r *restore) make() (err error) {
	path := r.target + restoringSuffix
	if r.dir, err = datadir.Make(vfs.Default, path); err != nil {
		return err // Another restore may hold the lock.
	}
	defer func() { err = errors.Join(err, r.dir.Release()) }()
	if err = r.fill(); err == nil {
		err = r.rename()
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// fill makes the store and the identity.
func (r *restore) fill() error {
	if err := r.clear(); err != nil {
		return err
	}
	store := r.dir.File("store")
	files := storage.AdoptDir(vfs.Default, store)
	if err := os.MkdirAll(files, 0o755); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := r.opts.Repository.Copy(r.ctx, r.done.Backup, vfs.Default, files, r.progress("copying")); err != nil {
		return err
	}
	me := cluster.NewCluster(r.opts.NodeID)
	id, err := me.Cluster()
	if err != nil {
		return err
	}
	opts := r.opts.Store
	machine.EnsureDefaults(&opts)
	opts.Dir, opts.Cluster, opts.Logger, opts.Fail = store, id, r.opts.Logger, r.opts.Fail
	members := raft.EncodeMembers([]raft.Member{{ID: me.RaftID(), Address: r.opts.RaftAddress, Voter: true}})
	if err := storage.Adopt(opts, promiseOf(r.done.Backup), members, r.opts.StartPaused); err != nil {
		return err
	}
	r.done.NodeID, r.done.ClusterID = me.NodeID, me.ClusterID
	return errors.Join(storage.SyncDir(vfs.Default, store), r.dir.Save(me))
}

// clear removes the files of an interrupted restore.
func (r *restore) clear() error {
	names, err := os.ReadDir(r.dir.Path())
	for _, n := range names {
		if n.Name() != "LOCK" {
			err = errors.Join(err, os.RemoveAll(r.dir.File(n.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}

func promiseOf(m *backup.Manifest) storage.Promise {
	return storage.Promise{Cluster: m.Cluster, Index: m.Position, Term: m.Term, RollingHash: m.RollingHash,
		PersistedAt: m.CompleteThrough, Runs: m.Runs, Events: m.Events}
}

// rename gives the directory its final name.
func (r *restore) rename() error {
	if err := r.vacant(); err != nil {
		return err // It was empty when the restore began.
	}
	if err := os.Remove(r.target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r.notReplaceable(err)
	}
	if err := os.Rename(r.dir.Path(), r.target); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := storage.SyncDir(vfs.Default, filepath.Dir(r.target)); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}
