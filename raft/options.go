package raft

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage"
)

// Options of a node.
type Options struct {
	// Dir holds the log and the snapshots' metadata, and nothing else. Required.
	Dir string
	// FS holds Dir. Default: the operating system's.
	FS vfs.FS
	// NodeID names this node in its cluster for ever. Required.
	NodeID string
	// Listener gives the connections of other members, and of nobody else: hashicorp/raft believes
	// whoever is at the other end. Required; the node closes it.
	Listener net.Listener
	// Dial connects to the member at an address. Default: TCP.
	Dial func(address string, timeout time.Duration) (net.Conn, error)
	// Advertise is the address at which the other members reach this node. Default: the listener's.
	Advertise string
	// Founders make a group where this node belongs to none, as its voters. Empty: the node waits
	// for the leader of a group that it was made a member of. Exactly one of the founders of a
	// group may be given them.
	Founders []Member
	// AskTerm asks another member for the term that it is in, for linearizable reads (READ-2).
	// Default: nobody answers, which suits one voter.
	AskTerm func(context.Context, Member) (uint64, error)
	// Ask asks another member how far it is. Default: nobody answers.
	Ask func(context.Context, Member) (Progress, error)
	// Autopilot looks after the members while this node leads.
	Autopilot AutopilotOptions
	// Store is where committed entries are applied. Required; the caller closes it after the node.
	Store *storage.Store
	// Fail is told why the node had to stop itself (D10). It should end the process; if it returns,
	// the node answers nothing more. Required.
	Fail func(error)
	// ElectionTimeout is how long a node waits for a leader before it stands for election, and a
	// leader for a majority before it steps down. Default: 1 s. An only voter does not wait.
	ElectionTimeout time.Duration
	// CommitTimeout is how long followers may learn later than the leader what is committed: so
	// long may a read that is linearizable wait on a follower when nothing else is being written.
	// So often the leader calls on every follower. Default: 10 ms.
	CommitTimeout time.Duration
	// SegmentBytes is the size of a file of the log. Default: 64 MiB.
	SegmentBytes int
	// CacheBytes bounds the entries that are kept in memory for followers and for apply. Default:
	// 16 MiB.
	CacheBytes int
	// TruncateBytes of new log make the node flush its store and drop the log's oldest entries.
	// Default: 256 MiB.
	TruncateBytes uint64
	// TrailingEntries stay in the log after it was truncated, at least. Default: 64.
	TrailingEntries uint64
	// TrailingBytes stay in the log after it was truncated, about, so that a member that was away
	// for a while need not be sent all there is. Default: 128 MiB.
	TrailingBytes uint64
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a registry that nobody reads.
	Registerer prometheus.Registerer
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.ElectionTimeout == 0 {
		o.ElectionTimeout = time.Second
	}
	if o.CommitTimeout == 0 {
		o.CommitTimeout = 10 * time.Millisecond
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 16 << 20
	}
	if o.TruncateBytes == 0 {
		o.TruncateBytes = 256 << 20
	}
	if o.TrailingEntries == 0 {
		o.TrailingEntries = 64
	}
	if o.TrailingBytes == 0 {
		o.TrailingBytes = 128 << 20
	}
	if o.Dial == nil {
		o.Dial = dialPlain
	}
	if o.Advertise == "" && o.Listener != nil {
		o.Advertise = o.Listener.Addr().String()
	}
	if o.Ask == nil {
		o.Ask = func(context.Context, Member) (Progress, error) { return Progress{}, errNobody }
	}
	if o.AskTerm == nil {
		o.AskTerm = func(context.Context, Member) (uint64, error) { return 0, errNobody }
	}
	o.Autopilot.ensureDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
}

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("raft: Options.Dir is empty"))
	}
	if o.NodeID == "" {
		errs = append(errs, errors.New("raft: Options.NodeID is empty"))
	}
	if o.Listener == nil {
		errs = append(errs, errors.New("raft: Options.Listener is nil"))
	}
	if o.Store == nil {
		errs = append(errs, errors.New("raft: Options.Store is nil"))
	}
	if o.Fail == nil {
		errs = append(errs, errors.New("raft: Options.Fail is nil"))
	}
	return errors.Join(errs...)
}
