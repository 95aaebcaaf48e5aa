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

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
)

var (
	// ErrNotLeader means that this node does not lead now. What was proposed was not stored.
	ErrNotLeader = errors.New("raft: this node is not the leader")
	// ErrUnknown means that a proposal may or may not have been stored: leadership or the node was lost
	// after it was proposed (D4i).
	ErrUnknown = errors.New("raft: outcome unknown")
	// ErrTooLarge means that an entry has more bytes than the log can read back. It was not stored.
	ErrTooLarge = errors.New("raft: entry too large")
	// ErrLogTooShort means that the log lacks entries that were once committed.
	ErrLogTooShort = errors.New("raft: log is too short")
	// ErrLogBehindStore means that the log lacks entries that the store has applied, so that it must
	// have lost acknowledged entries.
	ErrLogBehindStore = errors.New("raft: log is behind the store")
)

const (
	snapshotsKept = 2
	// closeTimeout is how long Close waits for proposals under way, of the 10 s that a stop may take.
	closeTimeout = 3 * time.Second
	// markEvery is how far the commit mark may trail the log, and how often the log's size is looked at.
	markEvery = time.Second
	// maxAppendEntries keeps the backlog to the state machine at 128 × 8 entries of up to 1 MiB (D4d).
	maxAppendEntries = 8
	// maxSettling is far more than the proposals that are under way at a time.
	maxSettling = 64
)

// Node is one member of the Raft group.
type Node struct {
	opts    Options
	raft    *hraft.Raft
	wal     *wal.WAL
	files   *segmentFiles
	logs    *logStore
	stable  *stableStore
	mark    *commitMark // housekeep's, once the node runs
	metrics *metrics
	verify  verifier

	// ready is set while this node leads and has applied everything of earlier terms.
	ready struct {
		sync.Mutex
		leading bool
		changed chan struct{}
	}
	failed atomic.Bool

	// flight counts the proposals whose answer somebody waits for.
	flight struct {
		sync.Mutex
		closing bool
		count   int
		changed chan struct{} // has room for one: count went down
	}

	answers  answers
	settling chan *proposal // in the order in which they were proposed
	settled  chan struct{}  // closed when settle has ended

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
	n.flight.changed = make(chan struct{}, 1)
	n.settling, n.settled = make(chan *proposal, maxSettling), make(chan struct{})
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
	if n.mark, err = openMark(n.opts.Dir); err != nil {
		return err
	}
	if n.stable, err = openStable(vfs.Default, n.opts.Dir, n.fail); err != nil {
		return err
	}
	if err := finishRotation(dir, n.mark.index); err != nil {
		return err
	}
	if n.files, err = openSegmentFiles(dir, n.opts.Logger); err != nil {
		return err
	}
	n.wal, err = wal.Open(dir, wal.WithSegmentSize(n.opts.SegmentBytes), wal.WithLogger(log),
		wal.WithSegmentFiler(segment.NewFiler(dir, n.files)))
	if err != nil {
		return fmt.Errorf("raft: open log in %s: %w", dir, err)
	}
	n.logs = &logStore{
		wal: n.wal, opened: time.Now(), cache: entryCache{limit: n.opts.CacheBytes},
		applied: func() uint64 { return n.opts.Store.Applied().Index }, metrics: n.metrics, fail: n.fail,
	}
	if err := n.logs.countBytes(dir); err != nil {
		return err
	}
	snapshots, err := hraft.NewFileSnapshotStoreWithLogger(n.opts.Dir, snapshotsKept, log)
	if err != nil {
		return fmt.Errorf("raft: open snapshots in %s: %w", n.opts.Dir, err)
	}
	if err := n.checkLog(snapshots); err != nil {
		return err
	}
	fsm := &stateMachine{store: n.opts.Store, metrics: n.metrics, fail: n.fail, applied: n.applied}
	trans := newTransport(n.opts.Listener, log)
	leading := make(chan bool, 16)
	conf := n.config(leading)
	conf.Logger = log
	if err := n.bootstrap(conf, snapshots, trans); err != nil {
		return errors.Join(err, trans.Close())
	}
	if n.raft, err = hraft.NewRaft(conf, fsm, n.logs, n.stable, snapshots, trans); err != nil {
		return errors.Join(fmt.Errorf("raft: %w", err), trans.Close())
	}
	go n.settle()
	n.done.Go(func() { n.followLeadership(leading) })
	n.done.Go(n.housekeep)
	n.done.Go(n.watchLog)
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
	// Entries are no measure of a log; housekeep counts bytes instead (D4h).
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
	if last < applied {
		return fmt.Errorf("%w: the log ends at %d, the store holds everything up to %d; %s", ErrLogBehindStore, last, applied, advice)
	}
	if last < n.mark.index {
		return tooShort(last, n.mark.index)
	}
	if err := n.checkTerm(last); err != nil {
		return err
	}
	dropped, err := droppedBy(snapshots)
	if err != nil {
		return err
	}
	if dropped.store > applied {
		return fmt.Errorf("raft: store is behind the log: entries up to %d were dropped, the store holds %d; %s", dropped.store, applied, advice)
	}
	if first > dropped.log+1 {
		return fmt.Errorf("raft: the log begins at %d, and what is known of the entries before it ends at %d; %s", first, dropped.log, advice)
	}
	return nil
}

// checkTerm compares the remembered term with that of the log's last entry: a node that forgot a term could
// vote in it again.
func (n *Node) checkTerm(last uint64) error {
	if last == 0 {
		return nil
	}
	var l hraft.Log
	if err := n.logs.GetLog(last, &l); err != nil {
		return err
	}
	if n.stable.state.term < l.Term {
		return fmt.Errorf("raft: the file %s says term %d, the log ends in term %d; %s", voteFile, n.stable.state.term, l.Term, advice)
	}
	return nil
}

const advice = "do not delete anything; restore the missing files of the data directory, or the node from a backup"

func tooShort(last, mark uint64) error {
	return fmt.Errorf("%w: the log ends at %d, entries up to %d were committed; %s", ErrLogTooShort, last, mark, advice)
}

// drop is how far the newest snapshot allowed the log to be dropped; zero without one.
type drop struct {
	log   uint64 // the log index that the snapshot stands for
	store uint64 // the applied index that the store held on stable storage then
}

func droppedBy(snapshots hraft.SnapshotStore) (drop, error) {
	list, err := snapshots.List()
	if err != nil {
		return drop{}, fmt.Errorf("raft: list snapshots: %w", err)
	}
	if len(list) == 0 {
		return drop{}, nil
	}
	_, r, err := snapshots.Open(list[0].ID)
	if err != nil {
		return drop{}, fmt.Errorf("raft: open snapshot %s: %w", list[0].ID, err)
	}
	var meta snapshotMeta
	err = errors.Join(json.NewDecoder(r).Decode(&meta), r.Close())
	if err != nil {
		return drop{}, fmt.Errorf("raft: read snapshot %s: %w", list[0].ID, err)
	}
	return drop{log: list[0].Index, store: meta.Applied}, nil
}

func (n *Node) bootstrap(conf *hraft.Config, snapshots hraft.SnapshotStore, trans hraft.Transport) error {
	exists, err := hraft.HasExistingState(n.logs, n.stable, snapshots)
	if err != nil {
		return fmt.Errorf("raft: look for a group: %w", err)
	}
	if exists && !n.bootstrapInterrupted(snapshots) {
		return nil
	}
	if exists {
		if err := n.stable.SetUint64([]byte(keyCurrentTerm), 0); err != nil {
			return fmt.Errorf("raft: make a group: %w", err)
		}
	}
	err = hraft.BootstrapCluster(conf, n.logs, n.stable, snapshots, trans, hraft.Configuration{
		Servers: []hraft.Server{{ID: conf.LocalID, Address: trans.LocalAddr()}},
	})
	if err != nil {
		return fmt.Errorf("raft: make a group: %w", err)
	}
	return nil
}

// bootstrapInterrupted tells a group whose making was cut off between its two writes, first the term,
// then the configuration, so that it could never elect a leader. It is in term 1, has never voted and has
// nothing else: a node that voted may have acknowledged events, and has lost them.
func (n *Node) bootstrapInterrupted(snapshots hraft.SnapshotStore) bool {
	last, lastErr := n.logs.LastIndex()
	list, listErr := snapshots.List()
	return errors.Join(lastErr, listErr) == nil && n.stable.state.term == 1 && n.stable.state.votedTerm == 0 &&
		last == 0 && len(list) == 0 && n.opts.Store.Applied().Index == 0
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
				if err := n.barrier(); err != nil {
					n.opts.Logger.Warn("barrier of a new leader failed", "err", err)
					continue
				}
			}
			n.setLeading(now)
		}
	}
}

// barrier waits until everything of earlier terms is applied, or until the node closes: hashicorp/raft
// forgets what waits in its queues when it shuts down.
func (n *Node) barrier() error {
	applied := make(chan error, 1)
	go func() { applied <- n.raft.Barrier(0).Error() }()
	select {
	case err := <-applied:
		return err
	case <-n.stop:
		return errStopped
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
		now, changed := n.ready.leading && !n.failed.Load(), n.ready.changed
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

// housekeep moves the commit mark on, and drops the log's oldest entries whenever it has grown by
// TruncateBytes.
func (n *Node) housekeep() {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	var base uint64
	for {
		select {
		case <-n.stop:
			n.advanceMark()
			return
		case <-tick.C:
		}
		n.advanceMark()
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

// advanceMark moves the mark to what is applied, which is committed.
func (n *Node) advanceMark() {
	if n.failed.Load() {
		return
	}
	if err := n.mark.advance(n.opts.Store.Applied().Index); err != nil {
		n.fail(err)
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

// Close takes no more proposals, waits a while for the answers of those under way, and stops the node.
func (n *Node) Close() error {
	n.flight.Lock()
	n.flight.closing = true
	n.flight.Unlock()
	n.awaitProposals()
	err := n.raft.Shutdown().Error()
	close(n.stop)
	n.done.Wait()
	n.endSettling()
	n.setLeading(false)
	return errors.Join(err, n.closeFiles())
}

// awaitProposals returns when all proposals have their answer, or after closeTimeout: hashicorp/raft
// forgets what waits in its queues when it shuts down.
func (n *Node) awaitProposals() {
	deadline := time.After(closeTimeout)
	for {
		n.flight.Lock()
		count, changed := n.flight.count, n.flight.changed
		n.flight.Unlock()
		if count == 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			n.opts.Logger.Warn("closing with proposals that have no answer", "count", count)
			return
		}
	}
}

// endSettling joins settle, which a future that hashicorp/raft forgot would hold for ever.
func (n *Node) endSettling() {
	n.flight.Lock()
	left := n.flight.count
	n.flight.Unlock()
	if left == 0 {
		close(n.settling)
		<-n.settled
	}
	n.answers.abandon()
}

func (n *Node) closeFiles() error {
	n.metrics.unregister(n.opts.Registerer)
	err := n.opts.Listener.Close()
	if n.raft != nil {
		err = nil // the transport has closed the listener
	}
	if n.mark != nil {
		err = errors.Join(err, n.mark.close())
	}
	if n.wal != nil {
		err = errors.Join(err, n.wal.Close())
	}
	if n.files != nil {
		n.files.close()
	}
	return err
}
