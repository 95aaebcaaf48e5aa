package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/offline"
	"runlog/storage"
	"runlog/storage/backup"
)

// formHeld makes the cluster from a backup of another one, in which runs wait and events are due,
// and holds it (BUS-3, QUE-6). Faults begin later.
func (w *world) formHeld(ctx context.Context) error {
	first := w.nodes[0]
	first.alone = true
	w.original.Store(true)
	first.powerOn()
	if err := first.ready(ctx); err != nil {
		return err
	}
	if err := w.clients.Prepare(ctx, "preparer"); err != nil {
		return err
	}
	repo := backup.Open(vfs.NewMem(), "backups")
	if err := w.backUp(ctx, repo); err != nil {
		return fmt.Errorf("sim: back up: %w", err)
	}
	if !first.stop() {
		return errors.New("sim: the node that was backed up does not serve")
	}
	w.original.Store(false)
	disk, err := first.restore(ctx, repo)
	if err != nil {
		return fmt.Errorf("sim: restore: %w", err)
	}
	first.mu.Lock()
	first.disk = disk
	first.mu.Unlock()
	w.clients.Hold()
	first.powerOn()
	if err := first.ready(ctx); err != nil {
		return err
	}
	for _, n := range w.nodes[1:] {
		if err := w.join(ctx, n); err != nil {
			return err
		}
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	first.alone = false
	return nil
}

// backUp takes a backup of the cluster, once it has a signing key.
func (w *world) backUp(ctx context.Context, repo *backup.Repository) error {
	c, err := w.connect("operator")
	if err != nil {
		return err
	}
	for {
		keys, err := c.ListSigningKeys(ctx)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		if len(keys) > 0 {
			break
		}
		time.Sleep(operatorPause)
	}
	_, err = repo.Take(func(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
		return c.Backup(ctx, req)
	}, backup.TakeOptions{})
	return errors.Join(err, c.Close())
}

// restore returns a disk with the data directory of the node that a backup makes. The product
// restores to the file system of the machine alone.
func (n *node) restore(ctx context.Context, repo *backup.Repository) (_ *disk, err error) {
	dir, err := os.MkdirTemp("", "restored")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o := n.options(nil)
	target := filepath.Join(dir, o.DataDir)
	if _, err := offline.Restore(ctx, offline.RestoreOptions{
		Options: offline.Options{
			DataDir: target, NodeID: n.host, RaftAddress: o.RaftListen, Store: o.Store, SegmentBytes: o.Raft.SegmentBytes, Logger: o.Logger,
			Fail: func(err error) { n.world.fault("restore: %v", err) },
		},
		Repository: repo, StartPaused: true,
	}); err != nil {
		return nil, err
	}
	d := newDisk()
	_, err = vfs.Clone(vfs.Default, d.mem, target, o.DataDir, vfs.CloneSync)
	return d, errors.Join(err, storage.SyncDir(d.mem, filepath.Dir(o.DataDir)))
}

// join adds a new node to a cluster that runs.
func (w *world) join(ctx context.Context, n *node) error {
	token, err := w.operator.joinToken(n)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.joins, n.token = true, token
	n.mu.Unlock()
	n.powerOn()
	if err := n.ready(ctx); err != nil {
		return err
	}
	return w.operator.until(func(ctx context.Context, via runlogv1.ClusterServiceClient) (bool, error) {
		m, err := memberOf(ctx, via, n.host)
		return err == nil && m.GetRole() == runlogv1.MemberRole_VOTER, err
	})
}

// release ends the hold some time after the faults have begun.
func (w *world) release() {
	rng := rand.New(rand.NewPCG(w.opts.Seed, 0x68656c64))
	time.Sleep(w.opts.Length/4 + time.Duration(rng.Int64N(int64(w.opts.Length/2))))
	w.clients.Release()
	if err := w.operator.until(func(ctx context.Context, via runlogv1.ClusterServiceClient) (bool, error) {
		_, err := via.ReleaseHold(ctx, &runlogv1.ReleaseHoldRequest{})
		return err == nil, err
	}); err != nil {
		w.fault("cannot release the cluster: %v", err)
		return
	}
	w.log.Info("released")
	w.seen.count(Released)
}
