package raft

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage"
)

// Options of a node.
type Options struct {
	// Dir holds the log and the snapshots' metadata, and nothing else. Required.
	Dir string
	// NodeID names this node in its cluster for ever. Required.
	NodeID string
	// Listener takes connections of other nodes. Required; the node closes it.
	Listener net.Listener
	// Store is where committed entries are applied. Required; the caller closes it after the node.
	Store *storage.Store
	// Fail is told why the node had to stop itself (D10). It should end the process; if it returns, the
	// node answers nothing more. Required.
	Fail func(error)
	// ElectionTimeout is how long a node waits for a leader before it stands for election. Default:
	// 100 ms, which suits one voter.
	ElectionTimeout time.Duration
	// SegmentBytes is the size of a file of the log. Default: 64 MiB.
	SegmentBytes int
	// CacheBytes bounds the entries that are kept in memory for followers and for apply. Default: 16 MiB.
	CacheBytes int
	// TruncateBytes of new log make the node flush its store and drop the log's oldest entries.
	// Default: 256 MiB.
	TruncateBytes uint64
	// TrailingEntries stay in the log after it was truncated. Default: 64.
	TrailingEntries uint64
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a registry that nobody reads.
	Registerer prometheus.Registerer
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.ElectionTimeout == 0 {
		o.ElectionTimeout = 100 * time.Millisecond
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
