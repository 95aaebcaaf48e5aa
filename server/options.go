package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/storage"
	"runlog/storage/machine"
)

// Memory of a node.
const (
	DefaultMemoryBytes = 1 << 30
	MinMemoryBytes     = 256 << 20

	// maxMemTableBytes keeps flushes short, and is well below Pebble's own limit of 4 GiB.
	maxMemTableBytes = 512 << 20
)

// DefaultMinFreeBytes has room for the log's next segments, and for the flush that lets go of the
// last ones.
const DefaultMinFreeBytes = 512 << 20

// When checkpoints are signed.
const (
	DefaultCheckpointInterval = time.Minute
	DefaultCheckpointEvents   = 100_000
)

// Options of a server.
type Options struct {
	// DataDir is everything the node keeps. Required.
	DataDir string
	// FS has DataDir. Default: the machine's. TLS files are the machine's always.
	FS vfs.FS
	// NodeID names a new node; default: made once and kept in DataDir.
	NodeID string
	// Addresses to listen on; port 0 picks a free one. Required.
	GRPCListen, HTTPListen, AdminListen, RaftListen string
	// Listen makes the listeners of those addresses. Default: net.Listen.
	Listen func(network, address string) (net.Listener, error)
	// Dial connects to other nodes' RaftAdvertise. Default: the network, with keep-alives that find
	// a machine that is gone.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Version is what the node says it is.
	Version string

	// BootstrapExpect is how many new nodes found a cluster together. 0 or 1: this one alone,
	// unless Join names others. A node that expects others and names none waits to be found or
	// invited.
	BootstrapExpect int
	// Join are addresses (RaftListen, or RaftAdvertise) of other nodes: to found a cluster with, or
	// of members to join.
	Join []string
	// RaftAdvertise is where other nodes reach this one; GRPCAdvertise and HTTPAdvertise where
	// clients do. Default: the addresses that it listens on.
	RaftAdvertise, GRPCAdvertise, HTTPAdvertise string
	// TLS between nodes. Zero: plain text.
	TLS TLSFiles
	// LeaderWait is how long a call waits for a leader that is about to be elected. Default: 3 s.
	LeaderWait time.Duration

	// MaxPayloadBytes bounds one payload (ENV-7). Default: 64 KiB; at most 1 MiB.
	MaxPayloadBytes int
	// MaxRequestBytes bounds one gRPC message or HTTP body. Default: 16 MiB.
	MaxRequestBytes int
	// QueueBytes bounds appends that wait for their answer (APP-9). Default: a sixteenth of
	// MemoryBytes.
	QueueBytes int64
	// MaxWait bounds how long a read waits for minSeq or minPosition. Default: 30 s.
	MaxWait time.Duration
	// RefuseUnknownTypes refuses event types that the contract does not know (ENV-6).
	RefuseUnknownTypes bool
	// OpaqueKeys takes any idempotency key that is printable, on 2.x events too (IDM-5, policy
	// opaque).
	OpaqueKeys bool
	// ClockSkewLimit is how far the clock may be behind the last persistedAt before CLOCK_SKEW_HIGH
	// is raised (APP-5). Default: 1 s.
	ClockSkewLimit time.Duration
	// LagLimit is how old an event may be that no snapshot shows before PROJECTOR_LAG_HIGH is
	// raised (PRJ-11). Default: 5 s.
	LagLimit time.Duration
	// MemoryBytes is what the node's caches and queues are sized for. Default: DefaultMemoryBytes;
	// at least MinMemoryBytes. The process must keep the Go runtime within it.
	MemoryBytes int64
	// MinFreeBytes is what the disk must have left for appends to be taken. Default:
	// DefaultMinFreeBytes; negative: nothing.
	MinFreeBytes int64
	// DiskFree returns the bytes that may still be written below a directory. Default: asks the
	// file system.
	DiskFree func(dir string) (uint64, error)
	// Heartbeat is how often an idle stream says that it lives (WATCH-4). Default: 15 s.
	Heartbeat time.Duration
	// SlowConsumer is how long one message of events may wait for its reader before the watch is
	// ended (WATCH-3). Default: 30 s.
	SlowConsumer time.Duration
	// MaxCatchUp bounds how many entries of the log a watch of many runs that resumes catches up
	// on. Default: 250,000.
	MaxCatchUp uint64
	// CheckpointInterval and CheckpointEvents are how long, and how many events, after a signed
	// checkpoint the next one is made, if anything has changed. Default: 60 s and 100,000. A
	// negative CheckpointInterval: neither a checkpoint nor a key is made before one is asked for.
	CheckpointInterval time.Duration
	CheckpointEvents   uint64
	// DrainTimeout ends the substatus DRAINING of a paused run (PRJ-9). Default: 5 min.
	DrainTimeout time.Duration

	// Store is handed to storage.Open; Dir, FS, Cluster, Logger, Registerer and Fail are set by the
	// server.
	Store storage.Options
	// Raft is handed to raft.Start; Dir, FS, NodeID, Listener, Store, Logger, Registerer and Fail
	// are set by the server.
	Raft raft.Options
	// Clock is the node's. Default: time.Now.
	Clock func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registry of metrics, served on the admin listener. Default: a new one.
	Registry *prometheus.Registry
	// Fail is told why the node had to stop itself (D10). It should end the process. Required.
	Fail func(error)
	// GRPC are further options of the gRPC server.
	GRPC []grpc.ServerOption
}

// TLSFiles are PEM files: the nodes' own authority, and this node's certificate and key.
type TLSFiles struct{ CA, Cert, Key string }

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.MaxPayloadBytes == 0 {
		o.MaxPayloadBytes = contract.DefaultMaxPayloadBytes
	}
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = 16 << 20
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = o.MemoryBytes / 16
	}
	if o.Store.CacheBytes == 0 {
		o.Store.CacheBytes = o.MemoryBytes / 8
	}
	if o.Store.ActiveBytes == 0 {
		o.Store.ActiveBytes = int(o.MemoryBytes / 8)
	}
	if o.Store.MemTableBytes == 0 {
		// of which up to four wait to be flushed
		o.Store.MemTableBytes = min(uint64(o.MemoryBytes/16), maxMemTableBytes)
	}
	machine.EnsureDefaults(&o.Store)
	if o.LeaderWait == 0 {
		o.LeaderWait = 3 * time.Second
	}
	if o.MaxWait == 0 {
		o.MaxWait = 30 * time.Second
	}
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = DefaultMinFreeBytes
	}
	if o.DiskFree == nil {
		fs := o.FS
		o.DiskFree = func(dir string) (uint64, error) {
			usage, err := fs.GetDiskUsage(dir)
			return usage.AvailBytes, err
		}
	}
	if o.ClockSkewLimit == 0 {
		o.ClockSkewLimit = time.Second
	}
	if o.LagLimit == 0 {
		o.LagLimit = 5 * time.Second
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.SlowConsumer == 0 {
		o.SlowConsumer = 30 * time.Second
	}
	if o.MaxCatchUp == 0 {
		o.MaxCatchUp = 250_000
	}
	if o.CheckpointInterval == 0 {
		o.CheckpointInterval = DefaultCheckpointInterval
	}
	if o.CheckpointEvents == 0 {
		o.CheckpointEvents = DefaultCheckpointEvents
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 5 * time.Minute
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
}

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var errs []error
	for _, f := range []struct{ name, value string }{
		{"DataDir", o.DataDir}, {"GRPCListen", o.GRPCListen}, {"HTTPListen", o.HTTPListen},
		{"AdminListen", o.AdminListen}, {"RaftListen", o.RaftListen},
	} {
		if f.value == "" {
			errs = append(errs, errors.New("server: Options."+f.name+" is empty"))
		}
	}
	if o.MaxPayloadBytes < 0 || o.MaxPayloadBytes > contract.LargestMaxPayloadBytes {
		errs = append(errs, errors.New("server: Options.MaxPayloadBytes is not between 0 and 1 MiB"))
	}
	if o.MemoryBytes < MinMemoryBytes {
		errs = append(errs, errors.New("server: Options.MemoryBytes is less than 256 MiB"))
	}
	if o.ClockSkewLimit < 0 {
		errs = append(errs, errors.New("server: Options.ClockSkewLimit is negative"))
	}
	if (o.TLS.CA == "") != (o.TLS.Cert == "") || (o.TLS.CA == "") != (o.TLS.Key == "") {
		errs = append(errs, errors.New("server: Options.TLS names some of its three files and not the others"))
	}
	if o.LagLimit < 0 {
		errs = append(errs, errors.New("server: Options.LagLimit is negative"))
	}
	if o.Fail == nil {
		errs = append(errs, errors.New("server: Options.Fail is nil"))
	}
	return errors.Join(errs...)
}
