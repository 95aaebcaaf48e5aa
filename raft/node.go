package raft

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

var (
	// ErrNotLeader means that this node does not lead now. What was proposed was not stored.
	ErrNotLeader = errors.New("raft: this node is not the leader")
	// ErrUnknown means that a proposal may or may not have been stored: leadership or the node was lost
	// after it was proposed (D4i).
	ErrUnknown = errors.New("raft: outcome unknown")
	// ErrLogBehindStore means that the log lacks entries that the store has applied, so that it must
	// have lost acknowledged entries.
	ErrLogBehindStore = errors.New("raft: log is behind the store")
)

const (
	snapshotsKept = 2
	// truncateCheck is how often the node looks whether the log has grown by TruncateBytes.
	truncateCheck = time.Second
	// maxAppendEntries keeps the backlog to the state machine at 128 × 8 entries of up to 1 MiB (D4d).
	maxAppendEntries = 8
)

// Node is one member of the Raft group.
type Node struct {
	opts    Options
	raft    *hraft.Raft
	wal     *wal.WAL
	logs    *logStore
	metrics *metrics
	verify  verifier

	// ready is set while this node leads and has applied everything of earlier terms.
	ready struct {
		sync.Mutex
		leading bool
		changed chan struct{}
	}
	failed atomic.Bool

	stop chan struct{}
	done sync.WaitGroup
}

// Start opens the log and joins the group, which it makes, of this node alone, where there is none.
func Start(opts Options) (*Node, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	n := &Node{opts: opts, metrics: newMetrics(opts.Registerer), stop: make(chan struct{})}
	n.ready.changed = make(chan struct{})
	n.verify.confirm = n.confirmLeader
	if err := n.start(); err != nil {
		return nil, errors.Join(err, n.closeFiles())
	}
	return n, nil
}

func (n *Node) start() error {
	log := newHCLogger(n.opts.Logger)
	dir := filepath.Join(n.opts.Dir, "wal")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	var err error
	if n.wal, err = wal.Open(dir, wal.WithSegmentSize(n.opts.SegmentBytes), wal.WithLogger(log)); err != nil {
		return fmt.Errorf("raft: open log in %s: %w", dir, err)
	}
	n.logs = &logStore{wal: n.wal, metrics: n.metrics, fail: n.fail}
	snapshots, err := hraft.NewFileSnapshotStoreWithLogger(n.opts.Dir, snapshotsKept, log)
	if err != nil {
		return fmt.Errorf("raft: open snapshots in %s: %w", n.opts.Dir, err)
	}
	if err := n.checkLog(snapshots); err != nil {
		return err
	}
	fsm := &stateMachine{store: n.opts.Store, metrics: n.metrics, fail: n.fail}
	trans := newTransport(n.opts.Listener, log)
	leading := make(chan bool, 16)
	conf := n.config(leading)
	conf.Logger = log
	if err := n.bootstrap(conf, snapshots, trans); err != nil {
		return errors.Join(err, trans.Close())
	}
	if n.raft, err = hraft.NewRaft(conf, fsm, n.logs, n.wal, snapshots, trans); err != nil {
		return errors.Join(fmt.Errorf("raft: %w", err), trans.Close())
	}
	n.done.Go(func() { n.followLeadership(leading) })
	n.done.Go(n.truncateLoop)
	return nil
}

func (n *Node) config(leading chan<- bool) *hraft.Config {
	conf := hraft.DefaultConfig()
	conf.LocalID = hraft.ServerID(n.opts.NodeID)
	conf.HeartbeatTimeout = n.opts.ElectionTimeout
	conf.ElectionTimeout = n.opts.ElectionTimeout
	conf.LeaderLeaseTimeout = n.opts.ElectionTimeout
	conf.MaxAppendEntries = maxAppendEntries
	conf.BatchApplyCh = true
	conf.NotifyCh = leading
	conf.NoSnapshotRestoreOnStart = true
	conf.TrailingLogs = n.opts.TrailingEntries
	// Entries are no measure of a log; truncateLoop counts bytes instead (D4h).
	conf.SnapshotThreshold = math.MaxUint64
	conf.SnapshotInterval = 24 * time.Hour
	return conf
}

// checkLog compares the log with the store before this node may vote (D2).
func (n *Node) checkLog(snapshots hraft.SnapshotStore) error {
	first, err := n.logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("raft: read log: %w", err)
	}
	last, err := n.logs.LastIndex()
	if err != nil {
		return fmt.Errorf("raft: read log: %w", err)
	}
	applied := n.opts.Store.Applied().Index
	const advice = "do not delete anything; restore the missing files of the data directory, or the node from a backup"
	if last < applied {
		return fmt.Errorf("%w: the log ends at %d, the store holds everything up to %d; %s", ErrLogBehindStore, last, applied, advice)
	}
	dropped, err := droppedUpTo(snapshots)
	if err != nil {
		return err
	}
	if dropped > applied {
		return fmt.Errorf("raft: store is behind the log: entries up to %d were dropped, the store holds %d; %s", dropped, applied, advice)
	}
	if dropped == 0 && first > applied+1 {
		return fmt.Errorf("raft: store is behind the log: the log begins at %d, the store holds %d; %s", first, applied, advice)
	}
	return nil
}

// droppedUpTo returns the highest applied index that a snapshot allowed the log to drop; 0: none.
func droppedUpTo(snapshots hraft.SnapshotStore) (uint64, error) {
	list, err := snapshots.List()
	if err != nil {
		return 0, fmt.Errorf("raft: list snapshots: %w", err)
	}
	if len(list) == 0 {
		return 0, nil
	}
	_, r, err := snapshots.Open(list[0].ID)
	if err != nil {
		return 0, fmt.Errorf("raft: open snapshot %s: %w", list[0].ID, err)
	}
	var meta snapshotMeta
	err = errors.Join(json.NewDecoder(r).Decode(&meta), r.Close())
	if err != nil {
		return 0, fmt.Errorf("raft: read snapshot %s: %w", list[0].ID, err)
	}
	return meta.Applied, nil
}

func (n *Node) bootstrap(conf *hraft.Config, snapshots hraft.SnapshotStore, trans hraft.Transport) error {
	exists, err := hraft.HasExistingState(n.logs, n.wal, snapshots)
	if err != nil {
		return fmt.Errorf("raft: look for a group: %w", err)
	}
	if exists {
		return nil
	}
	err = hraft.BootstrapCluster(conf, n.logs, n.wal, snapshots, trans, hraft.Configuration{
		Servers: []hraft.Server{{ID: conf.LocalID, Address: trans.LocalAddr()}},
	})
	if err != nil {
		return fmt.Errorf("raft: make a group: %w", err)
	}
	return nil
}

// followLeadership drains NotifyCh, which hashicorp/raft blocks on. A new leader first applies
// everything of earlier terms, then serves (D4e, D7).
func (n *Node) followLeadership(leading <-chan bool) {
	for {
		select {
		case <-n.stop:
			return
		case now := <-leading:
			if now {
				if err := n.raft.Barrier(0).Error(); err != nil {
					n.opts.Logger.Warn("barrier of a new leader failed", "err", err)
					continue
				}
			}
			n.setLeading(now)
		}
	}
}

func (n *Node) setLeading(now bool) {
	n.ready.Lock()
	defer n.ready.Unlock()
	if n.ready.leading == now {
		return
	}
	n.ready.leading = now
	close(n.ready.changed)
	n.ready.changed = make(chan struct{})
	n.metrics.leader.Set(0)
	if now {
		n.metrics.leader.Set(1)
	}
	n.opts.Logger.Info("leadership", "leading", now)
}

// Leading says whether this node can take proposals.
func (n *Node) Leading() bool {
	n.ready.Lock()
	defer n.ready.Unlock()
	return n.ready.leading && !n.failed.Load()
}

// WaitLeading returns when this node can take proposals, or with the context's error.
func (n *Node) WaitLeading(ctx context.Context) error { return n.wait(ctx, true) }

// WaitFollowing returns when this node cannot take proposals, or with the context's error.
func (n *Node) WaitFollowing(ctx context.Context) error { return n.wait(ctx, false) }

func (n *Node) wait(ctx context.Context, leading bool) error {
	for {
		n.ready.Lock()
		now, changed := n.ready.leading, n.ready.changed
		n.ready.Unlock()
		if now == leading {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// truncateLoop drops the log's oldest entries whenever it has grown by TruncateBytes.
func (n *Node) truncateLoop() {
	tick := time.NewTicker(truncateCheck)
	defer tick.Stop()
	var base uint64
	for {
		select {
		case <-n.stop:
			return
		case <-tick.C:
			written := n.logs.written.Load()
			if written-base < n.opts.TruncateBytes {
				continue
			}
			if err := n.Truncate(); err != nil {
				n.opts.Logger.Warn("log not truncated, trying again", "err", err)
				continue
			}
			base = written
		}
	}
}

// Truncate flushes the store and drops the entries that it then holds on stable storage, but for
// TrailingEntries.
func (n *Node) Truncate() error {
	err := n.raft.Snapshot().Error()
	if errors.Is(err, hraft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("raft: truncate: %w", err)
	}
	return nil
}

// fail stops the node from answering and tells the owner, once.
func (n *Node) fail(err error) {
	if n.failed.CompareAndSwap(false, true) {
		n.opts.Fail(err)
	}
}

// Close stops the node. Proposals that are under way end with ErrUnknown.
func (n *Node) Close() error {
	close(n.stop)
	err := n.raft.Shutdown().Error()
	n.done.Wait()
	return errors.Join(err, n.closeFiles())
}

func (n *Node) closeFiles() error {
	n.metrics.unregister(n.opts.Registerer)
	err := n.opts.Listener.Close()
	if n.raft != nil {
		err = nil // the transport has closed the listener
	}
	if n.wal != nil {
		err = errors.Join(err, n.wal.Close())
	}
	return err
}
