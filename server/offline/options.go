package offline

import (
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
)

// Options name the data directory and configure the node that it belongs to.
type Options struct {
	// DataDir is the node's data directory. Required.
	DataDir string
	// FS is the file system of DataDir, for Recover. Default: that of the operating system.
	FS vfs.FS
	// NodeID names a restored node. Default: a random name.
	NodeID string
	// RaftAddress is the address at which other nodes will reach a restored node.
	RaftAddress string
	// Store holds the options of the store. Dir, FS, Cluster, Logger and Fail are set here.
	Store storage.Options
	// SegmentBytes is the size of a log segment. Default: that of raft.
	SegmentBytes int
	// Logger. Default: discards.
	Logger *slog.Logger
	// Fail is called with the reason if the store cannot continue. Required.
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
