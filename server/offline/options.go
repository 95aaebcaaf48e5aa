package offline

import (
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
)

// Options of the node whose data directory is worked on.
type Options struct {
	// DataDir is everything the node keeps. Required.
	DataDir string
	// FS has DataDir, for Recover. Default: the machine's.
	FS vfs.FS
	// NodeID names a restored node. Default: made once.
	NodeID string
	// RaftAddress is where other nodes will reach a restored node.
	RaftAddress string
	// Store is handed to storage; Dir, FS, Cluster, Logger and Fail are set here.
	Store storage.Options
	// SegmentBytes of the log. Default: that of raft.
	SegmentBytes int
	// Logger. Default: discards.
	Logger *slog.Logger
	// Fail is told why the store cannot go on. Required.
	Fail func(error)
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}
