package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/raft"
	"runlog/raft/stamps"
	"runlog/server/budget"
	"runlog/server/cluster"
	"runlog/server/limits"
	"runlog/server/replica/batch"
	"runlog/storage"
)

// Options configure a replica. All are required unless a default is named.
type Options struct {
	// DataDir is the node's data directory, and RaftDir and StoreDir those of the log and of the
	// store.
	DataDir, RaftDir, StoreDir string
	Cluster                    *cluster.Cluster
	// Disk refuses appends while the disk is nearly full.
	Disk *Disk
	// Alerts is the node's set of alerts.
	Alerts *Alerts
	// Store and Raft are passed on. Open sets directories, identities, loggers and the like.
	Store storage.Options
	Raft  raft.Options
	// GRPCAddress is where clients reach this node. NotLeader does not send a caller back to it.
	GRPCAddress string
	// QueueBytes bounds the encoded appends in flight (APP-9).
	QueueBytes int64
	// Memory bounds the decoded events of appends in flight (D12).
	Memory *budget.Budget
	// LeaderWait bounds how long a call waits for a leader. MaxWait bounds how long a read waits
	// for minSeq or a position.
	LeaderWait, MaxWait time.Duration
	// ClockSkewLimit is how far the clock of a leader may be from its stamps. Beyond it the node
	// raises CLOCK_SKEW_HIGH (APP-5).
	ClockSkewLimit time.Duration
	// MaxClockAhead is how far a stamp may be ahead of the clocks of a majority (APP-5). Not
	// positive: no limit.
	MaxClockAhead time.Duration
	FS            vfs.FS
	// Clock and Monotonic are those of server.Options.
	Clock     func() time.Time
	Monotonic func() time.Time
	Logger    *slog.Logger
	Registry  *prometheus.Registry
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
	// Fail is called with the reason when the node has to stop itself (D10).
	Fail func(error)
}

// Replica is this node's copy of the log and of the state that the log produces.
type Replica struct {
	// Set by Open, and never again. Each part has locks of its own. Close closes the batcher first,
	// which answers what was admitted, then the node, which feeds the store, and then the store.

	opts      Options // Fail is that of the caller with a remedy added to its error
	log       *slog.Logger
	metrics   *metrics
	clusterID storage.ClusterID
	store     *storage.Store
	limits    *limits.Limiter
	stamps    *stamps.Judge
	node      *raft.Node
	batcher   *batch.Batcher

	// voters of the cluster, for remedies; 0: unknown. Open stores what the store says, and then
	// watchStamps what it was answered. Options.Fail reads it from any goroutine.
	voters atomic.Int64
	// reserved is in bytes the memory of the appends that wait for their answer. Each append adds
	// its own before it is proposed, and subtracts it when its Wait returns.
	reserved atomic.Int64

	tenants runTenants // has a lock of its own
	freezes freezes    // has a lock of its own

	loops sync.WaitGroup // of watchClock and watchStamps
}

// Open opens the replica. If the node lacks the cluster's state, Open waits for it as long as ctx
// lasts.
func Open(ctx context.Context, opts Options) (*Replica, error) {
	r := &Replica{opts: opts, log: opts.Logger, metrics: newMetrics(opts.Registry)}
	fail := opts.Fail
	r.opts.Fail = func(err error) { fail(r.remedy(err)) }
	if err := r.open(ctx); err != nil {
		err = r.remedy(err)
		return nil, errors.Join(err, r.Close())
	}
	r.loops.Go(r.watchClock)
	r.loops.Go(r.watchStamps)
	return r, nil
}

// remedy adds to an error about damaged files what the operator can do. It reads no file: the store
// reports damage while it reads.
func (r *Replica) remedy(err error) error {
	return cluster.Remedy(err, r.opts.DataDir, r.opts.Cluster.Identity().NodeID, int(r.voters.Load()))
}

func (r *Replica) open(ctx context.Context) (err error) {
	o := &r.opts
	me := o.Cluster.Identity()
	if r.clusterID, err = me.Cluster(); err != nil {
		return err
	}
	made, err := raft.Made(o.FS, o.RaftDir)
	if err == nil {
		err = o.Cluster.CheckData(made)
	}
	if err != nil {
		return err
	}
	store := o.Store
	store.FS, store.Dir, store.Cluster = o.FS, o.StoreDir, r.clusterID
	store.Logger, store.Registerer, store.Fail = o.Logger, o.Registry, o.Fail
	if r.store, err = storage.Open(store); err != nil {
		return err
	}
	r.voters.Store(int64(cluster.Voters(r.store)))
	if err := o.Cluster.EnsureState(ctx, r.store); err != nil {
		return err
	}
	if !made {
		if err := raft.Make(o.FS, o.RaftDir); err != nil {
			return err
		}
	}
	if err := o.Cluster.Starting(); err != nil {
		return err
	}
	// Rates are counted by a clock that no one sets.
	r.limits = limits.New(limits.Options{Amounts: r.amounts, Clock: time.Now, Registerer: o.Registry})
	return r.startRaft()
}

func (r *Replica) startRaft() (err error) {
	o := &r.opts
	opts := o.Raft
	opts.FS, opts.Dir = o.FS, o.RaftDir
	r.stamps = stamps.New(stamps.Options{
		Limit: o.MaxClockAhead, Clock: o.Clock, Monotonic: o.Monotonic,
		Last: func() int64 { return r.store.Applied().PersistedAt },
	})
	opts.Stamps = r.stamps
	opts.Store, opts.Logger, opts.Registerer, opts.Fail = r.store, o.Logger, o.Registry, o.Fail
	o.Cluster.RaftOptions(&opts)
	if r.node, err = raft.Start(opts); err != nil {
		return err
	}
	r.batcher = batch.New(batch.Options{
		Propose: r.node.Propose, Cluster: r.clusterID, Stamp: r.stamps.Next, QueueBytes: o.QueueBytes,
		Registerer: o.Registry, Check: r.store.CheckLevel,
	})
	return nil
}

// Close answers the admitted commands and closes Raft and the store. Options.Stopping must have
// ended.
func (r *Replica) Close() error {
	r.loops.Wait()
	var errs []error
	if r.batcher != nil {
		r.batcher.Close()
	}
	if r.node != nil {
		errs = append(errs, r.node.Close())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.limits != nil {
		r.limits.Close()
	}
	r.metrics.unregister(r.opts.Registry)
	return errors.Join(errs...)
}

// Store returns the store, for reads.
func (r *Replica) Store() *storage.Store { return r.store }

// Limits returns what the tenants may use.
func (r *Replica) Limits() *limits.Limiter { return r.limits }

// Node returns Raft, for members and leadership.
func (r *Replica) Node() *raft.Node { return r.node }

// Stamps returns the judge of stamps.
func (r *Replica) Stamps() *stamps.Judge { return r.stamps }

// ClusterID returns the cluster's id.
func (r *Replica) ClusterID() storage.ClusterID { return r.clusterID }

// Leading reports whether the node leads and has applied the entries of earlier leaders.
func (r *Replica) Leading() bool { return r.node.Leading() }
