package raft

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/raft/stamps"
	"runlog/raft/witness"
	"runlog/storage"
)

// DefaultSegmentBytes is 64 MiB: a new node fills two files of the log before it serves.
const DefaultSegmentBytes = 64 << 20

// Options of a node.
type Options struct {
	// Dir holds the log and the snapshots' metadata only. Required.
	Dir string
	// FS holds Dir. Default: the operating system's.
	FS vfs.FS
	// NodeID is this node's permanent name in its cluster. Required.
	NodeID string
	// Listener accepts connections of members only: hashicorp/raft trusts its peers. Required; the
	// node closes it.
	Listener net.Listener
	// Dial connects to the member at an address. Default: TCP.
	Dial func(address string, timeout time.Duration) (net.Conn, error)
	// Advertise is the address at which the other members reach this node. Default: the listener's.
	Advertise string
	// Founders are the voters of a new group. They are used only if this node belongs to no group.
	// Empty: the node waits for a leader that has added it. Only one founder may set them.
	Founders []Member
	// AskTerm asks another member for its current term, for linearizable reads (READ-2). Default:
	// no member answers, which suits a single voter.
	AskTerm func(context.Context, Member) (uint64, error)
	// Ask asks another member for its progress. Default: no member answers.
	Ask func(context.Context, Member) (Progress, error)
	// Meet is called once before this node may vote, with what it knows of itself: it greets the
	// members of the store, and those ahead: the log names them beyond what the store has applied.
	// fresh: the directory is new. After an error the node does not start. Default: no greeting.
	Meet func(w *witness.Witness, ahead []Member, fresh bool) error
	// Stamps judges the stamps of proposals (APP-5). Default: every stamp is taken.
	Stamps *stamps.Judge
	// Autopilot configures how the leader changes the members.
	Autopilot AutopilotOptions
	// Store applies committed entries. Required; the caller closes it after the node.
	Store *storage.Store
	// Fail is called with the reason when the node stops itself (D10), and with later errors. It
	// should end the process and not return: hashicorp/raft panics over some errors. If it returns,
	// the node answers no further call. Required.
	Fail func(error)
	// ElectionTimeout is how long a node waits for a leader before it becomes a candidate, and a
	// leader for a majority before it steps down. Default: 1 s. An only voter does not wait.
	ElectionTimeout time.Duration
	// CommitTimeout is the interval of the leader's messages to followers, and so the maximal delay
	// of a commit on an idle follower. A linearizable read on a follower may wait for that long.
	// Default: 10 ms.
	CommitTimeout time.Duration
	// SegmentBytes is the size of a file of the log. Default: DefaultSegmentBytes.
	SegmentBytes int
	// CacheBytes bounds the entries that are kept in memory for followers and for apply. Default:
	// 16 MiB.
	CacheBytes int
	// TruncateBytes of new log make the node flush its store and drop the log's oldest entries.
	// Default: 256 MiB.
	TruncateBytes uint64
	// TrailingEntries stay in the log after it was truncated, at least. Default: 64.
	TrailingEntries uint64
	// TrailingBytes stay in the log after truncation, approximately: a member that was away for a
	// while then needs no snapshot. Default: 128 MiB.
	TrailingBytes uint64
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a private registry.
	Registerer prometheus.Registerer
}

// EnsureDefaults sets the defaults of unset fields.
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
		o.SegmentBytes = DefaultSegmentBytes
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
	if o.Meet == nil {
		o.Meet = func(*witness.Witness, []Member, bool) error { return nil }
	}
	if o.Stamps == nil {
		o.Stamps = stamps.New(stamps.Options{})
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

// dialPlain connects to nodes that listen on a port of their own.
func dialPlain(address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", address, timeout)
}
