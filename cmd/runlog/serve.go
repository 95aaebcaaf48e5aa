package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"runlog/proto/contract"
	"runlog/server"
)

// serveCommand starts a node. Every flag is also an environment variable and a key of the
// configuration file; a flag wins over the environment, which wins over the file.
func (a *app) serveCommand() *cobra.Command {
	var (
		opts                        server.Options
		config, logLevel, logFormat string
		unknownTypes, keyPolicy     string
		memory                      = byteSize(server.DefaultMemoryBytes)
		minFree                     = byteSize(server.DefaultMinFreeBytes)
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start a node",
		Long: `Start a node. Without flags it keeps its data in ./runlog-data and listens on loopback.

Every flag is also an environment variable (--grpc-listen is RUNLOG_GRPC_LISTEN) and a key of the
configuration file (grpc-listen: 127.0.0.1:7410). Port 0 picks a free port; the addresses are logged
and written to addresses.json in the data directory once the node serves. SIGTERM drains and stops.`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.configure(cmd.LocalNonPersistentFlags(), config); err != nil {
				return err
			}
			switch {
			case opts.DataDir == "":
				return usageError("--data-dir is empty; leave it out for ./runlog-data")
			case opts.MaxPayloadBytes < 1 || opts.MaxPayloadBytes > contract.LargestMaxPayloadBytes:
				return usageError("--max-payload-bytes %d is not between 1 and %d", opts.MaxPayloadBytes, contract.LargestMaxPayloadBytes)
			case memory < server.MinMemoryBytes:
				least := byteSize(server.MinMemoryBytes)
				return usageError("--memory %s is too little; a node needs %s", &memory, &least)
			case opts.ClockSkewLimit <= 0:
				return usageError("--clock-skew-limit %s is not positive", opts.ClockSkewLimit)
			}
			if err := errors.Join(clusterFlags(&opts), checkpointFlags(&opts)); err != nil {
				return err
			}
			var err error
			if opts.RefuseUnknownTypes, err = choice("unknown-types", unknownTypes, "accept", "refuse"); err != nil {
				return err
			}
			opts.OpaqueKeys, err = choice("key-policy", keyPolicy, "derived", "opaque")
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(a.stderr, logLevel, logFormat)
			if err != nil {
				return err
			}
			opts.Logger, opts.Version = log, version
			opts.MemoryBytes, opts.MinFreeBytes = int64(memory), int64(minFree)
			if minFree == 0 {
				opts.MinFreeBytes = -1
			}
			return serve(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.DataDir, "data-dir", "./runlog-data", "everything the node keeps")
	f.StringVar(&opts.GRPCListen, "grpc-listen", "127.0.0.1:7410", "gRPC for clients")
	f.StringVar(&opts.HTTPListen, "http-listen", "127.0.0.1:7411", "JSON and Server-Sent Events")
	f.StringVar(&opts.AdminListen, "admin-listen", "127.0.0.1:7412", "metrics, pprof, health")
	f.StringVar(&opts.RaftListen, "raft-listen", "127.0.0.1:7413", "node to node")
	registerClusterFlags(f, &opts)
	f.IntVar(&opts.MaxPayloadBytes, "max-payload-bytes", 64<<10, "largest payload of an event, at most 1048576")
	f.Var(&memory, "memory", "memory that the node may use in all, at least 256MiB")
	f.Var(&minFree, "min-free-disk", "what the disk must have left for appends to be taken; below it they are refused, and reads go on; 0: nothing")
	f.StringVar(&unknownTypes, "unknown-types", "accept", "event types that the contract does not know: accept or refuse")
	f.StringVar(&keyPolicy, "key-policy", "derived", "idempotency keys of 2.x events: derived (must equal the derived key) or opaque")
	f.DurationVar(&opts.ClockSkewLimit, "clock-skew-limit", time.Second, "how far the clock may be behind the last persistedAt before CLOCK_SKEW_HIGH is raised")
	registerCheckpointFlags(f, &opts)
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	f.StringVar(&config, "config", a.getenv("RUNLOG_CONFIG"), "configuration file (YAML), also RUNLOG_CONFIG")
	complete(cmd, "unknown-types", "accept", "refuse")
	complete(cmd, "key-policy", "derived", "opaque")
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
	return cmd
}

// registerClusterFlags registers the flags that make a node one of several.
func registerClusterFlags(f *pflag.FlagSet, opts *server.Options) {
	f.StringVar(&opts.NodeID, "node-id", "", "name of a new node; made once and kept in the data directory")
	f.IntVar(&opts.BootstrapExpect, "bootstrap-expect", 0, "how many new nodes make a cluster together, each started with this number and with --join; one without --join waits to be invited")
	f.StringSliceVar(&opts.Join, "join", nil, "--raft-listen addresses of other nodes: of those to make a cluster with, or of any members of one to join")
	f.StringVar(&opts.RaftAdvertise, "raft-advertise", "", "where other nodes reach --raft-listen, if elsewhere")
	f.StringVar(&opts.GRPCAdvertise, "grpc-advertise", "", "where clients reach --grpc-listen, if elsewhere")
	f.StringVar(&opts.HTTPAdvertise, "http-advertise", "", "where clients reach --http-listen, if elsewhere")
	f.StringVar(&opts.TLS.CA, "node-ca", "", "PEM file of the authority of the nodes' certificates; with it nodes talk TLS to each other (runlog cluster certs)")
	f.StringVar(&opts.TLS.Cert, "node-cert", "", "PEM file of this node's certificate")
	f.StringVar(&opts.TLS.Key, "node-key", "", "PEM file of this node's key")
	f.DurationVar(&opts.Raft.ElectionTimeout, "election-timeout", time.Second, "how long nodes wait for a leader before they elect another")
	f.DurationVar(&opts.Raft.Autopilot.DeadAfter, "remove-dead-after", 10*time.Minute, "a member that has not answered for so long is removed once another has taken its place; 0: never")
}

// clusterFlags checks the flags that make a node one of several.
func clusterFlags(opts *server.Options) error {
	switch t := opts.TLS; {
	case opts.BootstrapExpect < 0:
		return usageError("--bootstrap-expect %d is negative", opts.BootstrapExpect)
	case (t.CA == "") != (t.Cert == "") || (t.CA == "") != (t.Key == ""):
		return usageError("--node-ca, --node-cert and --node-key belong together; runlog cluster certs makes them")
	case opts.Raft.ElectionTimeout < minElectionTimeout:
		return usageError("--election-timeout %s is less than %s", opts.Raft.ElectionTimeout, minElectionTimeout)
	}
	for _, address := range opts.Join {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return usageError("--join %s is no address: name host and port, as in host1:7413", address)
		}
	}
	for _, a := range []struct{ flag, listen, advertise string }{
		{"raft", opts.RaftListen, opts.RaftAdvertise}, {"grpc", opts.GRPCListen, opts.GRPCAdvertise}, {"http", opts.HTTPListen, opts.HTTPAdvertise},
	} {
		if len(opts.Join) > 0 && a.advertise == "" && everywhere(a.listen) {
			return usageError("--%s-listen %s is no address that others can reach: name one with --%s-advertise", a.flag, a.listen, a.flag)
		}
	}
	if opts.Raft.Autopilot.DeadAfter <= 0 {
		opts.Raft.Autopilot.DeadAfter = -1
	}
	return nil
}

// registerCheckpointFlags registers the flags that tell when checkpoints are signed.
func registerCheckpointFlags(f *pflag.FlagSet, opts *server.Options) {
	f.DurationVar(&opts.CheckpointInterval, "checkpoint-interval", server.DefaultCheckpointInterval, "how long after a signed checkpoint the next is made, if anything has changed")
	f.Uint64Var(&opts.CheckpointEvents, "checkpoint-events", server.DefaultCheckpointEvents, "how many events after a signed checkpoint the next is made, if that comes first")
}

// checkpointFlags checks the flags that tell when checkpoints are signed.
func checkpointFlags(opts *server.Options) error {
	switch {
	case opts.CheckpointInterval <= 0:
		return usageError("--checkpoint-interval %s is not positive", opts.CheckpointInterval)
	case opts.CheckpointEvents == 0:
		return usageError("--checkpoint-events 0 is not positive")
	}
	return nil
}

// minElectionTimeout is what a loaded machine needs to answer.
const minElectionTimeout = 50 * time.Millisecond

// everywhere tells an address that listens on all interfaces.
func everywhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "" || net.ParseIP(host).IsUnspecified())
}

// choice reads a flag of two words and tells whether it is the second.
func choice(flag, value, first, second string) (bool, error) {
	if value != first && value != second {
		return false, usageError("--%s %q is not %s or %s", flag, value, first, second)
	}
	return value == second, nil
}

// configure fills in the flags that the command line left out.
func (a *app) configure(flags *pflag.FlagSet, config string) error {
	file, err := readConfig(config)
	if err != nil {
		return err
	}
	for key := range file {
		if f := flags.Lookup(key); f == nil || key == "config" {
			return usageError("%s: unknown key %q; runlog serve --help lists them", config, key)
		}
	}
	var faults []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "config" || f.Name == "help" {
			return
		}
		env := "RUNLOG_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, from := a.getenv(env), env
		if value == "" {
			v, ok := file[f.Name]
			if !ok {
				return
			}
			value, from = flagText(v), config+": "+f.Name
		}
		if err := flags.Set(f.Name, value); err != nil {
			faults = append(faults, usageError("%s: %v", from, err))
		}
	})
	return errors.Join(faults...)
}

// flagText is a value of the file as it stands on a command line: a list has commas.
func flagText(v any) string {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprint(v)
	}
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = fmt.Sprint(list[i])
	}
	return strings.Join(texts, ",")
}

func readConfig(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError("--config: %v", err)
	}
	var file map[string]any
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, usageError("--config %s: %v", path, err)
	}
	return file, nil
}

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError("--log-level %q is not debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	default:
		return nil, usageError("--log-format %q is not text or json", format)
	}
}

// serve runs a node until the context ends.
func serve(ctx context.Context, opts server.Options) error {
	log := opts.Logger
	opts.Registry = prometheus.NewRegistry()
	opts.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Fail-stop: nothing may be written, answered or flushed by a node whose data is in doubt
	// (D10).
	opts.Fail = func(err error) {
		log.Error("the node stops itself", "err", err)
		os.Exit(int(exitFailed))
	}
	tuneCollector(opts.MemoryBytes)
	var governor sync.WaitGroup
	defer governor.Wait()
	governing, stop := context.WithCancel(ctx)
	defer stop()
	governor.Go(func() { governProcs(governing) })
	s, err := server.Start(ctx, opts)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		log.Info("stopping before the node belonged to a cluster")
		return nil
	}
	if err != nil {
		return explainStart(err)
	}
	addresses := s.Addresses()
	if err := s.WaitReady(ctx); err != nil {
		log.Info("stopping before the node was ready")
		return s.Close()
	}
	log.Info("ready", "version", version, "node", s.NodeID(), "data", opts.DataDir,
		"grpc", addresses.GRPC, "http", addresses.HTTP, "admin", addresses.Admin, "raft", addresses.Raft)
	<-ctx.Done()
	log.Info("stopping")
	// A disk that hangs would hold up the stop for ever. Whatever was acknowledged is in the log.
	limit := time.AfterFunc(stopLimit, func() {
		log.Error("the stop takes too long, ending at once", "limit", stopLimit)
		os.Exit(int(exitFailed))
	})
	err = s.Close()
	limit.Stop()
	log.Info("stopped")
	return err
}

// stopLimit is how long a stop may take.
const stopLimit = 10 * time.Second

// gcPercent lets the heap grow to five times what lives in it, as far as the memory limit allows:
// Go's default of twice costs an append a fifth of its time.
const gcPercent = 400

// tuneCollector keeps the process within its memory. What the Go runtime does not count, its binary
// and the kernel's buffers, gets a tenth. An operator who sets GOGC or GOMEMLIMIT knows better.
func tuneCollector(memory int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory / 10 * 9)
	}
}

// explainStart says what to do about a node that does not start.
func explainStart(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), isReadOnly(err):
		return &exitError{exitFailed, err.Error() + "; make it writable for this user, or choose another with --data-dir"}
	default:
		return &exitError{exitFailed, err.Error()}
	}
}

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }
