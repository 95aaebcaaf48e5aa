package raft

import (
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/liblog"
	"runlog/raft/internal/rounds"
	"runlog/raft/internal/streams"
	"runlog/raft/internal/transport"
	"runlog/raft/internal/wal"
	"runlog/raft/witness"
	"runlog/storage"
)

var (
	// ErrNotLeader means that this node does not lead. The proposal was not stored.
	ErrNotLeader = errors.New("raft: this node is not the leader")
	// ErrUnknown means that a proposal may or may not have been stored: leadership or the node was
	// lost after it was proposed (D4i).
	ErrUnknown = errors.New("raft: outcome unknown")
	// ErrTooLarge means that an entry has more bytes than the log can read back. It was not stored.
	ErrTooLarge = errors.New("raft: entry too large")
	// ErrLogTooShort means that the log lacks entries that were once committed.
	ErrLogTooShort = wal.ErrTooShort
	// ErrOverruled means that a snapshot has overruled the log of a running node, which must start
	// again. It has lost nothing.
	ErrOverruled = wal.ErrOverruled
	// ErrLogBehindStore means that the log lacks entries that the store has applied, so that it
	// must have lost acknowledged entries.
	ErrLogBehindStore = errors.New("raft: log is behind the store")
)

const (
	// closeTimeout is how long Close waits for proposals under way, of the 10 s that a stop may
	// take.
	closeTimeout = 3 * time.Second
	// maxKept bounds the log that is kept for a follower, in multiples of TruncateBytes.
	maxKept = 8
	// markEvery bounds the lag of the commit mark behind the log. It is also the interval between
	// checks of the log's size.
	markEvery = time.Second
	// witnessTicks is how many of these intervals the stored memory of other members may lag.
	witnessTicks = 5
	// barrierRetry is how long a new leader waits between barriers.
	barrierRetry = 10 * time.Millisecond
	// maxAppendEntries keeps the backlog to the state machine at 128 × 8 entries of up to 1 MiB
	// (D4d).
	maxAppendEntries = 8
	// maxSettling is far more than the proposals that are under way at a time.
	maxSettling = 64
)

// Node is one member of the Raft group.
//
// The goroutines of hashicorp/raft and those of the transport call it back: to write the log, to
// apply, to send and to receive snapshots. Its own goroutines are followLeadership, followLeader,
// housekeep, watchLog, settle, those of the pilot, and one that takes in the requests of leaders.
// Its methods may be called by any others.
type Node struct {
	// Set before the node runs, by the goroutine of Start (or of Recover and Replay, which run no
	// node), and never again. Each part has locks of its own.

	opts      Options
	metrics   *metrics
	library   *liblog.Log
	snapshots *snapshotStore
	logs      *wal.Log
	stable    *wal.Stable
	witness   *witness.Witness
	trans     hraft.Transport
	raft      *hraft.Raft
	pilot     *pilot
	verify    rounds.Rounds // of confirmLeader, shared by the callers of ConfirmLeader
	marked    uint64        // the commit mark at the start, up to which all is committed
	sole      bool          // Recover makes it the only member

	// Used by housekeep alone once the node runs, and by closeFiles after it has ended.

	mark *wal.Mark
	// keptUntil is how far the log may grow before it is truncated although a follower needs it; 0:
	// none does.
	keptUntil uint64

	// changing is a mutex with room for one. A change of the members has it from its look at the
	// members until it is made or its outcome is unknown, so that each decides on what it changes.
	changing chan struct{}

	// ready says whether this node takes proposals: it leads, and has applied everything of earlier
	// terms. followLeadership sets it, and Close when that has ended. It may lag behind Raft, so
	// leadership compares it with Raft's own state and term before it is believed.
	ready struct {
		sync.Mutex
		leading bool
		term    uint64        // in which it does
		changed chan struct{} // closed, and replaced, when the others change
	}
	following following // has a lock of its own
	// failed: the disk or the store is not to be trusted any more. Any goroutine sets it, and
	// nothing clears it. From then on no proposal is taken, and those in flight get ErrUnknown.
	failed atomic.Bool

	// The way of a proposal. Propose counts it in flight, enters it in answers, hands it to
	// hashicorp/raft, and sends it to settling. Nearly always the state machine answers it, from
	// applied, as soon as its entry is applied, and settle only counts it out. If the future has an
	// error instead, or the entry was applied in another way, settle finds the proposal still in
	// answers, and answers it. The goroutine that removes it from answers calls its done: so it is
	// answered once.

	// flight counts the proposals between acquire and release. A proposal enters only while neither
	// closing nor paused is set.
	flight struct {
		sync.Mutex
		closing bool // set by Close, for good
		paused  bool // while Transfer moves the leadership
		count   int
		changed chan struct{} // has room for one: count decreased
	}
	answers answers // has a lock of its own
	// settling has the proposals in the order in which they were proposed. Close closes it if none
	// is in flight: nothing is sent any more then. If one is, hashicorp/raft has dropped its
	// future, and settle stays blocked.
	settling chan *proposal
	settled  chan struct{} // closed when settle has ended

	// stop is closed by Close when Raft has been shut down. done has the goroutines that run until
	// then, but not settle, and not the short ones that wait for an answer of hashicorp/raft or of
	// a member.
	stop chan struct{}
	done sync.WaitGroup
}

// Start opens the log and joins the group. If the group does not exist and Options.Founders are
// set, it creates the group.
func Start(opts Options) (*Node, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	n := newNode(opts)
	if err := n.start(); err != nil {
		return nil, errors.Join(err, n.closeFiles())
	}
	return n, nil
}

func newNode(opts Options) *Node {
	n := &Node{opts: opts, metrics: newMetrics(opts.Registerer), stop: make(chan struct{})}
	n.library = liblog.New(opts.Logger.With("lib", "raft"))
	n.ready.changed = make(chan struct{})
	n.following.changed = make(chan struct{})
	n.flight.changed, n.changing = make(chan struct{}, 1), make(chan struct{}, 1)
	n.settling, n.settled = make(chan *proposal, maxSettling), make(chan struct{})
	n.verify.Call = n.confirmLeader
	return n
}

func (n *Node) start() error {
	if err := n.open(); err != nil {
		return err
	}
	fresh, err := n.begin()
	if err != nil {
		return err
	}
	trans := transport.New(streams.New(n.opts.Listener, n.opts.Advertise, n.opts.Dial), n.library.Logger(), n.sender(),
		transport.Notes{Led: n.led, Acknowledged: n.witness.Acknowledged, Announced: n.snapshots.announce})
	err = n.bootstrap(trans)
	// Before the node may vote, it asks the other members what they remember of it (D3).
	var ahead []Member
	if err == nil {
		ahead, err = n.membersAhead()
	}
	if err == nil {
		err = n.opts.Meet(n.witness, ahead, fresh)
	}
	if err == nil {
		err = n.run(trans)
	}
	if err != nil {
		return errors.Join(err, trans.Close())
	}
	n.done.Go(func() { trans.Deliver(n.raft.GetConfiguration, n.take) })
	n.electSelf()
	return nil
}

// open opens all that the node keeps, and checks that it fits together.
func (n *Node) open() error {
	disk := n.opts.FS
	dir := disk.PathJoin(n.opts.Dir, "wal")
	if err := disk.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	var err, lostMark, lostVote error
	if n.mark, err = wal.OpenMark(disk, n.opts.Dir); errors.Is(err, wal.ErrMark) {
		lostMark, err = err, nil
	}
	if err != nil {
		return err
	}
	n.marked = n.mark.Index()
	if n.stable, err = wal.OpenStable(disk, n.opts.Dir, n.fail); storage.Damaged(err) {
		lostVote, err = err, nil
	}
	if err != nil {
		return err
	}
	n.openWitness()
	n.logs, err = wal.Open(wal.Options{
		FS: disk, Dir: dir, Committed: n.mark.Index(), SegmentBytes: n.opts.SegmentBytes, CacheBytes: n.opts.CacheBytes,
		Applied: n.committed, Overrule: n.overrule, Diverged: n.diverged, Conflict: n.conflicts, Fail: n.fail,
		WriteSeconds: n.metrics.logWrite, WriteBytes: n.metrics.logBytes,
		Logger: n.opts.Logger, Library: n.library.Logger(),
	})
	if err != nil {
		return err
	}
	n.snapshots = &snapshotStore{
		disk: disk, dir: n.opts.Dir, store: n.opts.Store, logs: n.logs, stable: n.stable,
		fail: n.fail, conflicts: n.conflicts,
	}
	if err := n.snapshots.load(); err != nil {
		return err
	}
	if err := n.reconcile(lostVote); err != nil || lostMark == nil {
		return err
	}
	return n.renewMark(lostMark)
}

// run joins the group.
func (n *Node) run(trans hraft.Transport) error {
	n.trans = trans
	fsm := &stateMachine{
		store: n.opts.Store, snapshots: n.snapshots, metrics: n.metrics,
		fail: n.fail, applied: n.applied, diverged: n.divergedIn,
	}
	leading := make(chan bool, 16)
	var err error
	if n.raft, err = n.newRaft(fsm, leading, trans); err != nil {
		return err
	}
	n.pilot = newPilot(n)
	go n.settle()
	n.done.Go(func() { n.followLeadership(leading) })
	n.done.Go(n.housekeep)
	n.done.Go(n.watchLog)
	n.done.Go(n.pilot.run)
	n.done.Go(n.followLeader)
	return nil
}

// newRaft starts hashicorp/raft, which panics if it cannot read an entry of the log or write a
// term.
func (n *Node) newRaft(fsm *stateMachine, leading chan<- bool, trans hraft.Transport) (r *hraft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("raft: start: %v", p)
		}
	}()
	if r, err = hraft.NewRaft(n.config(leading), fsm, n.logs, n.stable, n.snapshots, trans); err != nil {
		return nil, fmt.Errorf("raft: %w", err)
	}
	return r, nil
}

func (n *Node) config(leading chan<- bool) *hraft.Config {
	conf := hraft.DefaultConfig()
	conf.LocalID = hraft.ServerID(n.opts.NodeID)
	conf.HeartbeatTimeout = n.opts.ElectionTimeout
	conf.ElectionTimeout = n.opts.ElectionTimeout
	conf.LeaderLeaseTimeout = n.opts.ElectionTimeout
	conf.CommitTimeout = min(n.opts.CommitTimeout, n.opts.ElectionTimeout/4)
	conf.MaxAppendEntries = maxAppendEntries
	conf.BatchApplyCh = true
	conf.NotifyCh = leading
	conf.Logger = n.library.Logger()
	conf.NoSnapshotRestoreOnStart = true
	conf.ShutdownOnRemove = false // the owner decides what a removed node does
	conf.TrailingLogs = n.opts.TrailingEntries
	// Entries are no measure of a log; housekeep counts bytes instead (D4h).
	conf.SnapshotThreshold = math.MaxUint64
	conf.SnapshotInterval = 24 * time.Hour
	return conf
}

// housekeep moves the commit mark on, and drops the log's oldest entries whenever it has grown by
// TruncateBytes.
func (n *Node) housekeep() {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	var base uint64
	for ticks := 1; ; ticks++ {
		select {
		case <-n.stop:
			n.advanceMark()
			n.saveWitness()
			return
		case <-tick.C:
		}
		n.advanceMark()
		if ticks%witnessTicks == 0 {
			n.saveWitness()
		}
		written := n.logs.Written()
		if written-base < n.opts.TruncateBytes || n.keepLog(written-base) {
			continue
		}
		if err := n.Truncate(); err != nil {
			n.opts.Logger.Warn("cannot truncate log; retrying", "err", err)
			continue
		}
		base = written
	}
}

// keepLog reports whether the log must be kept for a follower that receives a snapshot, and for
// TruncateBytes after that. The follower continues with these entries; without them it would need
// another snapshot. The log is not kept without bound (D12).
func (n *Node) keepLog(grown uint64) bool {
	if n.snapshots.streams.Load() > 0 {
		n.keptUntil = grown + n.opts.TruncateBytes
	}
	if grown >= n.keptUntil || grown >= maxKept*n.opts.TruncateBytes {
		n.keptUntil = 0
		return false
	}
	return true
}

// advanceMark moves the mark to the applied index. Applied entries are committed.
func (n *Node) advanceMark() {
	if n.failed.Load() {
		return
	}
	if err := n.mark.Advance(n.opts.Store.Applied().Index); err != nil {
		n.fail(err)
	}
}

// Truncate flushes the store and drops the entries that it then holds on stable storage, but for
// TrailingEntries and TrailingBytes.
func (n *Node) Truncate() error {
	conf := n.raft.ReloadableConfig()
	conf.TrailingLogs = max(n.opts.TrailingEntries, n.logs.Holding(n.opts.TrailingBytes))
	if err := n.raft.ReloadConfig(conf); err != nil {
		return fmt.Errorf("raft: truncate: %w", err)
	}
	err := n.await(func() error { return n.raft.Snapshot().Error() })
	if errors.Is(err, hraft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("raft: truncate: %w", err)
	}
	return nil
}

// fail stops the node from answering, and calls Options.Fail: also for an error after the first, if
// the process has not ended yet. hashicorp/raft panics over some errors, so the call that met one
// must not continue.
func (n *Node) fail(err error) {
	n.failed.Store(true)
	n.opts.Fail(err)
}

// Close takes no more proposals, waits a while for the answers of those under way, and stops the
// node.
func (n *Node) Close() error {
	n.flight.Lock()
	n.flight.closing = true
	n.flight.Unlock()
	n.library.Hush()
	n.awaitProposals()
	// A send to a member that does not read would delay the shutdown.
	err := n.trans.(hraft.WithClose).Close()
	err = errors.Join(err, n.raft.Shutdown().Error())
	close(n.stop)
	n.done.Wait()
	n.endSettling()
	n.setLeading(false, 0)
	return errors.Join(err, n.closeFiles())
}

// awaitProposals returns when all proposals have their answer, or after closeTimeout:
// hashicorp/raft drops its queues at shutdown.
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
			n.opts.Logger.Warn("closing with unanswered proposals", "count", count)
			return
		}
	}
}

// endSettling joins settle. A future that hashicorp/raft dropped would block it.
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
	if n.snapshots != nil {
		n.snapshots.close()
	}
	err := n.opts.Listener.Close()
	if n.raft != nil || errors.Is(err, net.ErrClosed) {
		err = nil // the transport has closed the listener
	}
	if n.mark != nil {
		err = errors.Join(err, n.mark.Close())
	}
	if n.logs != nil {
		err = errors.Join(err, n.logs.Close())
	}
	return err
}
