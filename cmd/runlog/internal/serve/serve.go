package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/cmd/internal/datadir"
	"runlog/cmd/internal/policyfile"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/server"
	"runlog/server/cosign"
	"runlog/server/gateway"
)

// serveCommand starts a node. Every flag is also an environment variable and a key of the
// configuration file. A flag overrides the environment, which overrides the file.
func (a *app) serveCommand() *cobra.Command {
	var (
		opts                        server.Options
		config, logLevel, logFormat string
		unknownTypes, keyPolicy     string
		witnesses                   string
		access                      accessFlags
		signals                     signalFlags
		maxPayload                  = output.ByteSize(contract.DefaultMaxPayloadBytes)
		memory                      = output.ByteSize(server.DefaultMemoryBytes)
		minFree                     = output.ByteSize(server.DefaultMinFreeBytes)
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start a node",
		Long: `Start a node. Without flags it stores its data in ./runlog-data and listens on loopback.

Every flag is also an environment variable (--grpc-listen is RUNLOG_GRPC_LISTEN) and a key of the
configuration file (grpc-listen: 127.0.0.1:7410). Port 0 takes a free port. Once the node serves, it
logs its addresses and writes them to addresses.json in the data directory. SIGTERM drains calls and
stops the node.`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(noConnection(cmd), a.configure(cmd.LocalNonPersistentFlags(), config)); err != nil {
				return err
			}
			if err := sizeFlags(&opts, maxPayload, memory); err != nil {
				return err
			}
			if err := errors.Join(clockFlags(&opts), clusterFlags(&opts), checkpointFlags(&opts), witnessFlag(&opts, witnesses), originFlag(&opts), secretFlag(&opts), sinkFlag(&opts), signals.check(&opts)); err != nil {
				return err
			}
			if err := eventFlags(&opts, unknownTypes, keyPolicy); err != nil {
				return err
			}
			return access.check(&opts)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := output.NewLogger(a.Stderr, logLevel, logFormat)
			if err != nil {
				return err
			}
			access.tell(log)
			opts.Logger, opts.Version = log, a.Version
			opts.MaxPayloadBytes, opts.MemoryBytes, opts.MinFreeBytes = int(maxPayload), int64(memory), int64(minFree)
			if minFree == 0 {
				opts.MinFreeBytes = -1
			}
			return Run(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.DataDir, "data-dir", "./runlog-data", "directory of all data of the node")
	f.StringVar(&opts.GRPCListen, "grpc-listen", "127.0.0.1:7410", "address of gRPC for clients")
	f.StringVar(&opts.HTTPListen, "http-listen", "127.0.0.1:7411", "address of HTTP for clients: JSON and Server-Sent Events")
	f.StringVar(&opts.AdminListen, "admin-listen", "127.0.0.1:7412", "address of metrics, pprof and health")
	f.StringVar(&opts.MetricsListen, "metrics-listen", "", "address of metrics and health alone, which need no credentials; with --tls-cert over TLS (default none)")
	f.StringVar(&opts.RaftListen, "raft-listen", "127.0.0.1:7413", "address for other nodes")
	access.register(f, &opts)
	registerClusterFlags(f, &opts)
	f.StringSliceVar(&opts.CORSOrigins, "cors-origins", nil,
		"origins whose web pages may call the API, such as https://ui.example.com; loopback, null, none, or * for all (default loopback if --http-listen is, else none)")
	f.Var(&maxPayload, "max-payload-bytes", "largest payload of an event, at most 1MiB")
	f.Var(&memory, "memory", "total memory that the node may use, at least 256MiB; also 2GB, or 10TiB")
	f.Var(&minFree, "min-free-disk", "free disk space below which the node refuses appends; reads go on; 0: no limit")
	f.StringVar(&unknownTypes, "unknown-types", "accept", "event types that are not in the contract: accept or refuse")
	f.StringVar(&keyPolicy, "key-policy", "derived", "idempotency keys of 2.x events: derived (must equal the derived key) or opaque")
	signals.register(cmd)
	f.StringVar(&opts.SinkSecretsDir, "sink-secrets-dir", "", "directory of the secrets of webhooks, NATS and Kafka (default none)")
	registerClockFlags(f, &opts)
	registerCheckpointFlags(f, &opts)
	f.StringVar(&witnesses, "witnesses", "", "file with a policy (C2SP tlog-policy); the node, while it leads, asks the witnesses that have a URL there to sign each checkpoint (default none)")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	f.StringVar(&config, "config", a.Getenv("RUNLOG_CONFIG"), "configuration file (YAML), also RUNLOG_CONFIG")
	completeValues(cmd)
	return cmd
}

// sizeFlags checks --data-dir, --max-payload-bytes and --memory.
func sizeFlags(opts *server.Options, maxPayload, memory output.ByteSize) error {
	switch {
	case opts.DataDir == "":
		return output.UsageError("--data-dir is empty; name a directory, or leave the flag out for ./runlog-data")
	case maxPayload < 1 || maxPayload > contract.LargestMaxPayloadBytes:
		return output.UsageError("--max-payload-bytes %s is not between 1 and %d", &maxPayload, contract.LargestMaxPayloadBytes)
	case memory < server.MinMemoryBytes:
		least := output.ByteSize(server.MinMemoryBytes)
		return output.UsageError("--memory %s is too little; a node needs at least %s", &memory, &least)
	}
	return nil
}

// completeValues completes the flags with a few values.
func completeValues(cmd *cobra.Command) {
	session.Complete(cmd, "auth", "required", "off")
	session.Complete(cmd, "unknown-types", "accept", "refuse")
	session.Complete(cmd, "secret-scan", server.SecretScans...)
	session.Complete(cmd, "key-policy", "derived", "opaque")
	session.Complete(cmd, "log-level", "debug", "info", "warn", "error")
	session.Complete(cmd, "log-format", "text", "json")
}

// eventFlags checks --unknown-types and --key-policy.
func eventFlags(opts *server.Options, unknownTypes, keyPolicy string) (err error) {
	if opts.RefuseUnknownTypes, err = choice("unknown-types", unknownTypes, "accept", "refuse"); err != nil {
		return err
	}
	opts.OpaqueKeys, err = choice("key-policy", keyPolicy, "derived", "opaque")
	return err
}

// secretFlag checks --secret-scan.
func secretFlag(opts *server.Options) error {
	if !slices.Contains(server.SecretScans, opts.SecretScan) {
		return output.UsageError("--secret-scan %q is not %s", opts.SecretScan, strings.Join(server.SecretScans, ", "))
	}
	return nil
}

// sinkFlag checks --sink-secrets-dir.
func sinkFlag(opts *server.Options) error {
	if opts.SinkSecretsDir == "" {
		return nil
	}
	if info, err := os.Stat(opts.SinkSecretsDir); err != nil || !info.IsDir() {
		return output.UsageError("--sink-secrets-dir %q is not a directory: make it", opts.SinkSecretsDir)
	}
	return nil
}

// originFlag checks --cors-origins.
func originFlag(opts *server.Options) error {
	if slices.Equal(opts.CORSOrigins, []string{"none"}) {
		opts.CORSOrigins = []string{}
	}
	for _, origin := range opts.CORSOrigins {
		if err := gateway.CheckOrigin(origin); err != nil {
			return output.UsageError("--cors-origins: %v", err)
		}
	}
	return nil
}

// registerClockFlags registers the limits of the node's clock, and how long a pause may drain.
func registerClockFlags(f *pflag.FlagSet, opts *server.Options) {
	f.DurationVar(&opts.ClockSkewLimit, "clock-skew-limit", time.Second, "how far the leader's clock may differ from its stamps before it raises CLOCK_SKEW_HIGH")
	f.DurationVar(&opts.DrainTimeout, "drain-timeout", run.DefaultDrainTimeout, "how long a paused run may drain before the leader raises PAUSE_DRAIN_TIMEOUT; equal on all nodes")
	f.DurationVar(&opts.MaxClockAhead, "max-clock-ahead", server.DefaultMaxClockAhead, "how far stamps may be ahead of the clocks of a majority of the voters; a node further ahead does not lead; 0: no limit")
}

// clockFlags checks what registerClockFlags registers.
func clockFlags(opts *server.Options) error {
	switch {
	case opts.ClockSkewLimit <= 0:
		return output.UsageError("--clock-skew-limit %s is not positive", opts.ClockSkewLimit)
	case opts.DrainTimeout <= 0:
		return output.UsageError("--drain-timeout %s is not positive", opts.DrainTimeout)
	case opts.MaxClockAhead == 0:
		opts.MaxClockAhead = -1
	case opts.MaxClockAhead < minMaxClockAhead:
		return output.UsageError("--max-clock-ahead %s is less than %s; 0 means no limit", opts.MaxClockAhead, minMaxClockAhead)
	}
	return nil
}

// registerClusterFlags registers the flags that make a node one of several.
func registerClusterFlags(f *pflag.FlagSet, opts *server.Options) {
	f.StringVar(&opts.NodeID, "node-id", "", "name of a new node, stored in the data directory; default: generated")
	f.IntVar(&opts.BootstrapExpect, "bootstrap-expect", 0, "how many new nodes form a cluster, each started with this number and with --join; a node without --join waits for an invitation")
	f.StringSliceVar(&opts.Join, "join", nil, "--raft-listen addresses of other nodes: those to form a cluster with, or any members of a cluster to join")
	f.StringVar(&opts.RaftAdvertise, "raft-advertise", "", "address at which other nodes reach --raft-listen, if different")
	f.StringVar(&opts.GRPCAdvertise, "grpc-advertise", "", "address at which clients reach --grpc-listen, if different")
	f.StringVar(&opts.HTTPAdvertise, "http-advertise", "", "address at which clients reach --http-listen, if different")
	f.StringVar(&opts.TLS.CA, "node-ca", "", "PEM file of the certificate authority; with it nodes use TLS between each other (runlog cluster certs)")
	f.StringVar(&opts.TLS.Cert, "node-cert", "", "PEM file of this node's certificate")
	f.StringVar(&opts.TLS.Key, "node-key", "", "PEM file of this node's key")
	f.DurationVar(&opts.Raft.ElectionTimeout, "election-timeout", time.Second, "how long a node waits for its leader before it starts an election")
	f.DurationVar(&opts.Raft.Autopilot.DeadAfter, "remove-dead-after", 10*time.Minute, "time without an answer after which a member is removed, once another has taken its place; 0: never")
}

// clusterFlags checks the flags that make a node one of several.
func clusterFlags(opts *server.Options) error {
	switch t := opts.TLS; {
	case opts.BootstrapExpect < 0:
		return output.UsageError("--bootstrap-expect %d is negative", opts.BootstrapExpect)
	case (t.CA == "") != (t.Cert == "") || (t.CA == "") != (t.Key == ""):
		return output.UsageError("--node-ca, --node-cert and --node-key need each other; runlog cluster certs makes the files")
	case opts.Raft.ElectionTimeout < minElectionTimeout:
		return output.UsageError("--election-timeout %s is less than %s", opts.Raft.ElectionTimeout, minElectionTimeout)
	}
	for _, a := range []struct{ flag, address, example string }{
		{"--grpc-listen", opts.GRPCListen, "127.0.0.1:7410"}, {"--http-listen", opts.HTTPListen, "127.0.0.1:7411"},
		{"--admin-listen", opts.AdminListen, "127.0.0.1:7412"}, {"--raft-listen", opts.RaftListen, "127.0.0.1:7413"},
		{"--metrics-listen", opts.MetricsListen, "127.0.0.1:7414"},
	} {
		if err := checkListen(a.address); err != nil && (a.address != "" || a.flag != "--metrics-listen") {
			return output.UsageError("%s %q is no address to listen on: %v; give host and port, as in %s", a.flag, a.address, err, a.example)
		}
	}
	for _, address := range opts.Join {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return output.UsageError("--join %s is no address; give host and port, as in host1:7413", address)
		}
	}
	for _, a := range []struct{ flag, listen, advertise string }{
		{"raft", opts.RaftListen, opts.RaftAdvertise}, {"grpc", opts.GRPCListen, opts.GRPCAdvertise}, {"http", opts.HTTPListen, opts.HTTPAdvertise},
	} {
		if len(opts.Join) > 0 && a.advertise == "" && everywhere(a.listen) {
			return output.UsageError("--%s-listen %s is no address that others can reach; name one with --%s-advertise", a.flag, a.listen, a.flag)
		}
	}
	if opts.Raft.Autopilot.DeadAfter <= 0 {
		opts.Raft.Autopilot.DeadAfter = -1
	}
	return nil
}

// checkListen checks the form of an address, before the node makes anything on disk.
func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if e, ok := errors.AsType[*net.AddrError](err); ok {
		return errors.New(e.Err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port from 0 to 65535", port)
	}
	return nil
}

// registerCheckpointFlags registers the flags of the schedule of signed checkpoints.
func registerCheckpointFlags(f *pflag.FlagSet, opts *server.Options) {
	f.DurationVar(&opts.CheckpointInterval, "checkpoint-interval", server.DefaultCheckpointInterval, "time between signed checkpoints, if anything has changed")
	f.Uint64Var(&opts.CheckpointEvents, "checkpoint-events", server.DefaultCheckpointEvents, "events between signed checkpoints, if these come first")
}

// checkpointFlags checks the flags of the schedule of signed checkpoints.
func checkpointFlags(opts *server.Options) error {
	switch {
	case opts.CheckpointInterval <= 0:
		return output.UsageError("--checkpoint-interval %s is not positive", opts.CheckpointInterval)
	case opts.CheckpointEvents == 0:
		return output.UsageError("--checkpoint-events 0 is not positive")
	}
	return nil
}

// witnessFlag reads the file of --witnesses.
func witnessFlag(opts *server.Options, path string) error {
	if path == "" {
		return nil
	}
	p, err := policyfile.Read("witnesses", path)
	if err != nil {
		return err
	}
	opts.Witnesses = p.Endpoints()
	if len(opts.Witnesses) == 0 {
		return output.UsageError("--witnesses %s: no witness has a URL: add it at the end of the line of each that is to be asked", path)
	}
	if err := cosign.Check(opts.Witnesses); err != nil {
		return output.UsageError("--witnesses %s: %v", path, err)
	}
	return nil
}

// minMaxClockAhead is far more than clocks differ that are synchronised.
const minMaxClockAhead = 10 * time.Second

// minElectionTimeout is the time that a loaded machine needs to answer.
const minElectionTimeout = 50 * time.Millisecond

// everywhere reports whether an address listens on all interfaces.
func everywhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "" || net.ParseIP(host).IsUnspecified())
}

// choice parses a flag with two values and reports whether it has the second.
func choice(flag, value, first, second string) (bool, error) {
	if value != first && value != second {
		return false, output.UsageError("--%s %q is not %s or %s", flag, value, first, second)
	}
	return value == second, nil
}

// configure sets the flags that the command line left out.
func (a *app) configure(flags *pflag.FlagSet, config string) error {
	file, err := readConfig(config)
	if err != nil {
		return err
	}
	for key := range file {
		if f := flags.Lookup(key); f == nil || key == "config" {
			return output.UsageError("%s: unknown key %q; %s", config, key,
				session.Suggest(key, flagNames(flags), "runlog serve --help lists the keys"))
		}
	}
	var faults []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "config" || f.Name == "help" {
			return
		}
		env := session.Variable(f.Name)
		value, from := a.Getenv(env), env
		if value == "" {
			v, ok := file[f.Name]
			if !ok {
				return
			}
			value, from = flagText(v), config+": "+f.Name
		}
		if err := flags.Set(f.Name, value); err != nil {
			faults = append(faults, output.UsageError("%s: %v", from, err))
		}
	})
	return errors.Join(faults...)
}

func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// flagText formats a value of the file as on a command line: a list with commas.
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
		return nil, output.UsageError("--config: %v; name a YAML file that this user can read", err)
	}
	var file map[string]any
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, output.UsageError("--config %s: %v; correct the file", path, err)
	}
	return file, nil
}

// Run runs a node until the context ends.
func Run(ctx context.Context, opts server.Options) error {
	log := opts.Logger
	opts.Registry = prometheus.NewRegistry()
	opts.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Fail-stop: nothing may be written, answered or flushed by a node whose data is in doubt
	// (D10). The first reason is the last line: another goroutine that meets an error waits.
	var ending sync.Mutex
	opts.Fail = func(err error) {
		ending.Lock()
		log.Error("the node stops itself", "err", err)
		os.Exit(int(output.ExitFailed))
	}
	opts.OpenFiles = openFiles()
	tuneCollector(opts.MemoryBytes)
	var governor sync.WaitGroup
	defer governor.Wait()
	governing, stop := context.WithCancel(ctx)
	defer stop()
	governor.Go(func() { governProcs(governing) })
	governor.Go(func() { governCollector(governing) })
	s, err := server.Start(ctx, opts)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		log.Info("stopping before the node belongs to a cluster")
		return nil
	}
	if err != nil {
		return datadir.Explain(err)
	}
	addresses := s.Addresses()
	if err := s.WaitReady(ctx); err != nil {
		log.Info("stopping before the node is ready")
		return s.Close()
	}
	log.Info("ready", "version", opts.Version, "node", s.NodeID(), "data", opts.DataDir,
		"grpc", addresses.GRPC, "http", addresses.HTTP, "admin", addresses.Admin, "metrics", addresses.Metrics, "raft", addresses.Raft)
	<-ctx.Done()
	log.Info("stopping")
	// A disk that hangs would block the shutdown forever. All acknowledged events are in the log.
	limit := time.AfterFunc(stopLimit, func() {
		log.Error("shutdown takes too long; exiting", "limit", stopLimit)
		os.Exit(int(output.ExitFailed))
	})
	err = s.Close()
	limit.Stop()
	log.Info("stopped")
	return err
}

// stopLimit bounds the shutdown.
const stopLimit = 10 * time.Second

// noConnection refuses the flags of commands that call a node: --token does not protect one, and
// --tls does not make it serve TLS.
func noConnection(cmd *cobra.Command) error {
	for _, name := range []string{"server", "context", "tls", "cacert", "cert", "cert-key", "token", "token-file"} {
		if f := cmd.InheritedFlags().Lookup(name); f != nil && f.Changed {
			return output.UsageError("--%s is for commands that call a node. A node itself has --tls-cert, --tls-key, --auth and --admin-token-file: see runlog serve --help", name)
		}
	}
	return nil
}
