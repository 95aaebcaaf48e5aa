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

// ErrNotEmpty means that a backup is to be restored where something is.
var ErrNotEmpty = errors.New("server: the data directory is not empty")

// ErrNotReplaceable means that a backup is to be restored into a directory that cannot be replaced
// by another.
var ErrNotReplaceable = errors.New("server: the data directory cannot be replaced by the restored one")

// ErrBackupFormat means that a backup was made by a build whose data have another format.
var ErrBackupFormat = errors.New("server: the backup has data of another format")

// RestoreOptions say which backup is restored, and where.
type RestoreOptions struct {
	Options
	Repository *backup.Repository
	// Backup is the name of the backup, or how it begins; empty: the one that reaches furthest.
	Backup string
	// PublicKeys, where there are any: one of them must have signed the backup.
	PublicKeys []string
	// Progress, where not nil, is told how far the verification is, and then the copy.
	Progress func(step string, p backup.Progress)
}

// Restored is a node that was made of a backup, and has not started yet.
type Restored struct {
	NodeID, ClusterID string
	Backup            *backup.Manifest
	// PublicKey has signed the backup; empty: that was not asked for.
	PublicKey string
}

// restoringSuffix is what a data directory is called, after its own name, while it is made.
const restoringSuffix = ".restoring"

// Restore makes the data directory of a node that goes on where a backup ends, as the only member
// of a new cluster. The backup is verified before anything is written; the directory gets its name
// last, so that a restore that was cut leaves nothing that serves. The nodes of the cluster that
// was backed up are strangers to the new one.
func Restore(ctx context.Context, opts RestoreOptions) (_ *Restored, err error) {
	opts.EnsureDefaults()
	if fault := cluster.NodeIDFault(opts.NodeID); opts.NodeID != "" && fault != "" {
		return nil, fmt.Errorf("--node-id %q %s", opts.NodeID, fault)
	}
	// Absolute: what is made beside it must not lie in it, as it would with ".".
	target, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	r := &restore{ctx: ctx, opts: &opts, target: target}
	// A link to a disk stays one.
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
	dir    *datadir.Dir // under its other name
	done   Restored
}

// choose finds the backup, and looks who has signed it.
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

// vacant refuses a target where something is.
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

// replaceable refuses a target, empty, that could not be replaced at the end: a place where a disk
// is mounted, or one that whoever calls stands in and would not find again. It moves the target
// away and back, which tells.
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

// make makes the directory under another name, which it loses when it is whole. What it has come to
// goes when it fails.
func (r *restore) make() (err error) {
	path := r.target + restoringSuffix
	if r.dir, err = datadir.Make(vfs.Default, path); err != nil {
		return err // Perhaps another restore is at work there.
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
	if err := storage.Adopt(opts, promiseOf(r.done.Backup), members); err != nil {
		return err
	}
	r.done.NodeID, r.done.ClusterID = me.NodeID, me.ClusterID
	return errors.Join(storage.SyncDir(vfs.Default, store), r.dir.Save(me))
}

// clear removes what a restore that was cut has left.
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

// rename gives the directory its name.
func (r *restore) rename() error {
	if err := r.vacant(); err != nil {
		return err // it was, a while ago
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
