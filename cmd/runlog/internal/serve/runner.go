package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/server"
)

// Runner executes the runs of a scope (tenant, project, environment) at a node, until ctx ends. It
// keeps manifests in dir, and serves its API at listen.
type Runner func(ctx context.Context, log *slog.Logger, node, dir, listen string, scope [3]string) error

// runnerFlags are those of a runner within the node.
type runnerFlags struct {
	run           Runner
	scope, listen string
	flags         *pflag.FlagSet
}

func (r *runnerFlags) register(f *pflag.FlagSet) {
	r.flags = f
	f.StringVar(&r.scope, "runner", "", "also execute runs, as runlog runner serve does: those of a TENANT/PROJECT/ENVIRONMENT; for a laptop, without a cluster and without access control")
	f.Lookup("runner").NoOptDefVal = "local/local/local"
	f.StringVar(&r.listen, "runner-listen", "127.0.0.1:7430", "loopback address of the API of --runner")
}

// check refuses a runner where others could use it, or what it executes, to get the rights of the
// node: a step is a process of the same user.
func (r *runnerFlags) check(opts *server.Options, accessControl bool) error {
	if err := session.RefuseEmpty(r.flags, "runner", "runner-listen"); err != nil {
		return err
	}
	const instead = "; start runlog runner serve beside the node, as another user"
	switch parts := strings.Split(r.scope, "/"); {
	case r.scope == "" && r.flags.Changed("runner-listen"):
		return output.UsageError("--runner-listen needs --runner")
	case r.scope == "":
		return nil
	case len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "":
		return output.UsageError("--runner %q is no scope: write --runner=TENANT/PROJECT/ENVIRONMENT, or --runner alone", r.scope)
	case accessControl:
		return output.UsageError("--runner and access control exclude each other: a step has the rights of the node, and could read its keys and tokens%s", instead)
	case len(opts.Join) > 0 || opts.BootstrapExpect > 1:
		return output.UsageError("--runner and a cluster exclude each other: a step has the rights of the node, and could change its copy of the log%s", instead)
	}
	for _, l := range [][2]string{{"runner", r.listen}, {"grpc", opts.GRPCListen}, {"http", opts.HTTPListen}, {"admin", opts.AdminListen}, {"raft", opts.RaftListen}} {
		host, _, err := net.SplitHostPort(l[1])
		if ip := net.ParseIP(host); err != nil || host != "localhost" && !ip.IsLoopback() {
			return output.UsageError("--runner needs --%s-listen at an address of loopback, and %s is none: other machines could have this one execute commands%s", l[0], l[1], instead)
		}
	}
	return nil
}

// beside returns what executes runs at a node; nil: nothing does.
func (r *runnerFlags) beside(opts *server.Options) func(context.Context, server.Addresses) error {
	if r.scope == "" {
		return nil
	}
	return func(ctx context.Context, a server.Addresses) error {
		return r.run(ctx, opts.Logger, a.GRPC, filepath.Join(opts.DataDir, "runner"), r.listen, [3]string(strings.Split(r.scope, "/")))
	}
}

// noArguments refuses arguments, and tells how to write a scope: the value of --runner is optional,
// so that it stands behind an equals sign.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.Flags().Changed("runner") {
		return fmt.Errorf("--runner takes its scope behind an equals sign: write --runner=%s", args[0])
	}
	return cobra.NoArgs(cmd, args)
}
