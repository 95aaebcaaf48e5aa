package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"runlog/audit/policy"
	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/auth"
	"runlog/server/cosign"
	"runlog/server/gateway"
	"runlog/server/subscriptions/delivery"
	"runlog/storage"
	"runlog/storage/machine"
)

// Limits of a node's memory, in bytes.
const (
	DefaultMemoryBytes = 1 << 30
	MinMemoryBytes     = 256 << 20

	// memoryShare is the part of the memory that requests and answers may use.
	memoryShare = 4
	// tailShare is the part of it that the newest events take, which the projector and the
	// deliveries share.
	tailShare = 64

	// maxMemTableBytes keeps flushes short. It is well below Pebble's limit of 4 GiB.
	maxMemTableBytes = 512 << 20
)

// DefaultMinFreeBytes has room for the next log segments, and for the flush that frees the old
// ones.
const DefaultMinFreeBytes = 512 << 20

// DefaultMaxClockAhead is far more than clocks differ by accident, and less than an operator takes
// for a small fault.
const DefaultMaxClockAhead = time.Hour

// Defaults for signed checkpoints.
const (
	DefaultCheckpointInterval = time.Minute
	DefaultCheckpointEvents   = 100_000
)

// Options of a server.
type Options struct {
	// DataDir is the node's data directory. Required.
	DataDir string
	// FS is the file system of DataDir. Default: that of the operating system. TLS files are always
	// read from the operating system's.
	FS vfs.FS
	// NodeID names a new node. Default: a random name, stored in DataDir.
	NodeID string
	// Addresses to listen on. Port 0 picks a free port. Required.
	GRPCListen, HTTPListen, AdminListen, RaftListen string
	// MetricsListen is the address of metrics and health alone, which need no credentials (SEC-12).
	// They use ClientTLS. Empty: only the admin listener has them.
	MetricsListen string
	// Listen opens the listeners of those addresses. Default: net.Listen.
	Listen func(network, address string) (net.Listener, error)
	// Dial connects to other nodes' RaftAdvertise. Default: TCP, with keep-alives that detect a
	// lost machine.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// DialOut connects to the receivers of webhooks, to the policy of signals and to witnesses. It
	// takes the place of the check that a webhook's address is not private. Default: TCP.
	DialOut func(ctx context.Context, network, address string) (net.Conn, error)
	// Version is the build's version, which the node reports.
	Version string

	// BootstrapExpect is the number of new nodes that found a cluster together. With 0 or 1 this
	// node founds a cluster alone, unless Join names other nodes. A node that expects others and
	// names none waits until another node finds or invites it.
	BootstrapExpect int
	// Join lists addresses (RaftListen or RaftAdvertise) of other founders, or of members of the
	// cluster to join.
	Join []string
	// JoinToken is the join token of a new node that joins a cluster without TLS between nodes.
	// Empty: it waits for an invitation.
	JoinToken string
	// RaftAdvertise is the address at which other nodes reach this one. GRPCAdvertise and
	// HTTPAdvertise are the addresses for clients. Default: the listening addresses.
	RaftAdvertise, GRPCAdvertise, HTTPAdvertise string
	// TLS secures the connections between nodes. Zero: plain text.
	TLS TLSFiles
	// ClientTLS secures the connections of clients, with TLS 1.3. CA is optional: with it a client
	// may show a certificate, which is verified, and Access tells whose it is. Zero: plain text.
	ClientTLS TLSFiles
	// Authenticate demands that every caller proves its identity (SEC-1). Otherwise callers without
	// credentials have every right.
	Authenticate bool
	// Insecure accepts that other machines reach the node without TLS or without authentication.
	Insecure bool
	// Access has the providers and certificates of identities; API tokens are in the store.
	Access auth.Config
	// AdminToken is the hash of a token with every right that is not stored in the cluster, for the
	// first call of an admin. Zero: none.
	AdminToken auth.TokenHash
	// LeaderWait bounds how long a call waits for an election. Default: 3 s.
	LeaderWait time.Duration

	// CORSOrigins are the origins whose web pages may call the API over HTTP; gateway.AnyOrigin and
	// gateway.LoopbackOrigins mean several. Default: those of this machine if HTTPListen is a
	// loopback address, else none.
	CORSOrigins []string
	// MaxPayloadBytes bounds one payload (ENV-7). Default: 64 KiB; at most 1 MiB.
	MaxPayloadBytes int
	// MaxRequestBytes bounds one gRPC message or HTTP body. Default: 16 MiB.
	MaxRequestBytes int
	// QueueBytes bounds the encoded appends in flight (APP-9). Default: a sixteenth of MemoryBytes.
	QueueBytes int64
	// MaxWait bounds how long a read waits for minSeq or minPosition. Default: 30 s.
	MaxWait time.Duration
	// RefuseUnknownTypes refuses event types that the contract does not know (ENV-6).
	RefuseUnknownTypes bool
	// SecretScan says what happens to an append with what looks like a secret: SecretRefuse,
	// SecretReport or SecretOff. Default: SecretRefuse.
	SecretScan string
	// Signals is the policy of signals (SIG-3, SIG-5).
	Signals SignalOptions
	// SinkSecretsDir has the secrets of the sinks of subscriptions (BUS-7); empty: there are none.
	SinkSecretsDir string
	// OpaqueKeys accepts any printable idempotency key, on 2.x events too (IDM-5, policy opaque).
	OpaqueKeys bool
	// ClockSkewLimit is how far the clock of a leader may be from its stamps. Beyond it the node
	// raises CLOCK_SKEW_HIGH (APP-5). Default: 1 s.
	ClockSkewLimit time.Duration
	// MaxClockAhead is how far a stamp may be ahead of the clocks of a majority of the voters
	// (APP-5). Default: 1 h. Negative: no limit.
	MaxClockAhead time.Duration
	// LagLimit is how old an event may be that snapshots lack. Beyond it the node raises
	// PROJECTOR_LAG_HIGH (PRJ-11). Default: 5 s.
	LagLimit time.Duration
	// MemoryBytes is the memory from which the sizes of caches, queues and the log's files are
	// derived. Default: DefaultMemoryBytes; at least MinMemoryBytes. The process must keep the Go
	// runtime within it.
	MemoryBytes int64
	// OpenFiles is how many files the process may have open. The node keeps enough of them for its
	// data, and bounds the connections of clients by the rest. 0: unknown, so connections have no
	// bound.
	OpenFiles int
	// MinFreeBytes is the free disk space below which appends are refused. Default:
	// DefaultMinFreeBytes. A negative value disables the check.
	MinFreeBytes int64
	// DiskFree returns the bytes that the process may still write below a directory. Default: a
	// query to the file system.
	DiskFree func(dir string) (uint64, error)
	// Heartbeat is the time between heartbeats on an idle stream (WATCH-4). Default: 15 s.
	Heartbeat time.Duration
	// SlowConsumer is how long one message of events may wait for its reader before the server ends
	// the watch (WATCH-3). Default: 30 s.
	SlowConsumer time.Duration
	// MaxCatchUp bounds how many log entries a resumed watch of many runs may be behind. Default:
	// 250,000.
	MaxCatchUp uint64
	// CheckpointInterval and CheckpointEvents are the time and the number of events after which the
	// next signed checkpoint is made, if anything has changed. Default: 60 s and 100,000. With a
	// negative CheckpointInterval the node makes checkpoints and keys on request only.
	CheckpointInterval time.Duration
	CheckpointEvents   uint64
	// Witnesses are asked to sign each checkpoint while the node leads (TR-4). Default: none.
	Witnesses []policy.Endpoint
	// DrainTimeout is how long a paused run may drain. Then the leader raises PAUSE_DRAIN_TIMEOUT,
	// and the substatus DRAINING ends (PRJ-9). Equal on all nodes. Default: 5 min.
	DrainTimeout time.Duration

	// Store holds the options for storage.Open. The server sets Dir, FS, Cluster, Logger,
	// Registerer and Fail.
	Store storage.Options
	// Raft holds the options for raft.Start. The server sets Dir, FS, NodeID, Listener, Store,
	// Logger, Registerer and Fail.
	Raft raft.Options
	// Clock returns the node's time. Default: time.Now.
	Clock func() time.Time
	// Monotonic returns times that differ by the time that has elapsed, whatever happens to Clock:
	// stamps advance with them (APP-5). Default: Clock, for time.Now has a monotonic clock reading.
	Monotonic func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registry of metrics, served on the admin listener and on that of metrics. Default: a new one.
	Registry *prometheus.Registry
	// Fail is called with the reason when the node has to stop itself (D10). It should end the
	// process. Required.
	Fail func(error)
	// OpenSink replaces the sinks of all subscriptions, for tests. Default: the sinks that their
	// settings name.
	OpenSink func() delivery.Sink
	// GRPC lists further options of the gRPC server.
	GRPC []grpc.ServerOption
}

// TLSFiles names PEM files: the certificate authority of the other ends, and this node's
// certificate and key.
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
	if o.SecretScan == "" {
		o.SecretScan = SecretRefuse
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
	o.ensureStoreDefaults()
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
	o.ensureClockDefaults()
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
		o.DrainTimeout = run.DefaultDrainTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
}

func (o *Options) ensureClockDefaults() {
	if o.ClockSkewLimit == 0 {
		o.ClockSkewLimit = time.Second
	}
	if o.MaxClockAhead == 0 {
		o.MaxClockAhead = DefaultMaxClockAhead
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Monotonic == nil {
		o.Monotonic = o.Clock
	}
}

// ensureStoreDefaults divides memory and open files. They are set.
func (o *Options) ensureStoreDefaults() {
	if o.Store.CacheBytes == 0 {
		o.Store.CacheBytes = o.MemoryBytes / 8
	}
	if o.Store.ActiveBytes == 0 {
		o.Store.ActiveBytes = int(o.MemoryBytes / 8)
	}
	if o.Store.RowBytes == 0 {
		o.Store.RowBytes = int(o.MemoryBytes / 64)
	}
	if o.Store.ChainBytes == 0 {
		o.Store.ChainBytes = int(o.MemoryBytes / 256)
	}
	if o.Store.MemTableBytes == 0 {
		// Up to four memtables wait for their flush.
		o.Store.MemTableBytes = min(uint64(o.MemoryBytes/16), maxMemTableBytes)
	}
	if o.Raft.SegmentBytes == 0 {
		// Two are filled with zeros, which a system counts as memory until they are on disk.
		o.Raft.SegmentBytes = int(min(o.MemoryBytes/16, raft.DefaultSegmentBytes))
	}
	if o.OpenFiles > 0 && o.Store.OpenFiles == 0 {
		o.Store.OpenFiles, _ = shareFiles(o.OpenFiles)
	}
	machine.EnsureDefaults(&o.Store)
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
	for _, origin := range o.CORSOrigins {
		if err := gateway.CheckOrigin(origin); err != nil {
			errs = append(errs, fmt.Errorf("server: Options.CORSOrigins: %w", err))
		}
	}
	if o.MaxPayloadBytes < 0 || o.MaxPayloadBytes > contract.LargestMaxPayloadBytes {
		errs = append(errs, errors.New("server: Options.MaxPayloadBytes is not between 0 and 1 MiB"))
	}
	if !slices.Contains(SecretScans, o.SecretScan) {
		errs = append(errs, errors.New("server: Options.SecretScan is not refuse, report or off"))
	}
	if err := o.Signals.validate(); err != nil {
		errs = append(errs, err)
	}
	if err := cosign.Check(o.Witnesses); err != nil {
		errs = append(errs, fmt.Errorf("server: Options.Witnesses: %w", err))
	}
	if o.MemoryBytes < MinMemoryBytes {
		errs = append(errs, errors.New("server: Options.MemoryBytes is less than 256 MiB"))
	}
	if o.ClockSkewLimit < 0 {
		errs = append(errs, errors.New("server: Options.ClockSkewLimit is negative"))
	}
	if (o.TLS.CA == "") != (o.TLS.Cert == "") || (o.TLS.CA == "") != (o.TLS.Key == "") {
		errs = append(errs, errors.New("server: Options.TLS names one or two of its three files; name all or none"))
	}
	if t := o.ClientTLS; (t.Cert == "") != (t.Key == "") || t.CA != "" && t.Cert == "" {
		errs = append(errs, errors.New("server: Options.ClientTLS lacks its certificate or its key; name both"))
	}
	if o.DrainTimeout < 0 {
		errs = append(errs, errors.New("server: Options.DrainTimeout is negative"))
	}
	if o.LagLimit < 0 {
		errs = append(errs, errors.New("server: Options.LagLimit is negative"))
	}
	if o.Fail == nil {
		errs = append(errs, errors.New("server: Options.Fail is nil"))
	}
	return errors.Join(errs...)
}
