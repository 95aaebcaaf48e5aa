package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"time"

	"github.com/spf13/cobra"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/engine/runner"
	"runlog/engine/workerflags"
)

// defaultExecutor is that of task steps that name none.
const defaultExecutor = "noop"

// serving is the configuration of a runner. What is empty is left out.
type serving struct {
	o      runner.Options
	listen string
	store  string   // a directory, or a URI of s3
	plans  []string // directories and URIs
	// approvedOnly: plans of the store are not executed.
	approvedOnly bool
	worker       workerflags.Flags
	trusting     bool // only users of this machine request runs
	logLevel     string
}

func (a *app) serveCommand() *cobra.Command {
	v := &serving{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Execute the runs of a queue, and serve the API of manifests and attestations",
		Long: `Execute the runs of a queue until a signal ends the process, and serve the HTTP API of manifests, runs and
attestations, with metrics at /metrics. Any number of runners may have the same queue, with the same store and the same
executors. A runner that is killed loses nothing: another one goes on with its runs once their leases have expired. One
that gets SIGTERM finishes the steps that it executes, for as long as --grace, and another one goes on at once.

Stores. --store and --plans take directories and URIs: file:///DIR, s3://BUCKET/PREFIX, and for --plans
https://HOST/PATH. S3 takes its address and its credentials from the usual variables: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_SHARED_CREDENTIALS_FILE and AWS_PROFILE, or from the
role of the machine.

With --approved-plans-only a caller executes no plan of its own: the API takes no manifests, and a run whose plan is not
below --plans fails. Who may write there decides what is executed.

Executors. Task steps are executed by noop, which returns its input, and by those that --executors names: command (a
process on this machine, with the rights of this one), http, and llm, which needs --llm-url. Whoever may request runs
can use all of them. Without the flag, a runner has noop, and llm if --llm-url is there. At a cluster of this machine
without access control it has command and http too. A plan with a step of another executor is refused, and its run fails.
A command gets no variable of the runner but those that --command-env names. A step of http reaches no private address,
unless it is in --http-networks, and uses no proxy.

Secrets. Steps name them by references, and the runner resolves them for each attempt. They belong to the tenant and the
environment of the run:
  env:NAME                 the variable SECRET_TENANT_NAME of the runner, such as SECRET_ACME_DB for env:DB of acme, or
                           one with another prefix, which --secret-env names
  file:NAME                the file TENANT/ENVIRONMENT/NAME below --secrets-dir
  vault:MOUNT/PATH#FIELD   the secret TENANT/ENVIRONMENT/PATH of the server VAULT_ADDR, with VAULT_TOKEN or the file
                           ~/.vault-token, and VAULT_NAMESPACE and VAULT_CACERT if they are set
--llm-key is such a reference too, of the runner itself: the variable NAME, the file NAME and the secret PATH, which no
plan can name.

Access. With a token (--token-file, RUNLOG_TOKEN), the runner needs the roles producer and reader. The callers of the
API send tokens of their own, and may do what these allow.`,
		Example: `  runlog-runner serve --store /var/lib/runner --tenant acme --project shop --environment prod
  runlog-runner serve --store s3://acme-runs --plans https://plans.example/approved --executors http,llm \
    --secrets-dir /run/secrets --llm-url https://llm.example/v1 --llm-model small --llm-key env:LLM_KEY --tenant acme --project shop --environment prod`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return session.RefuseEmpty(cmd.Flags(), "listen", "plans", "executors", "command-env", "http-networks", "secrets-dir", "secret-env", "llm-url", "llm-model", "llm-key", "llm-policy")
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), v) },
	}
	flags := cmd.Flags()
	of := flag.NewFlagSet("", flag.ContinueOnError)
	v.worker.Register(of)
	flags.AddGoFlagSet(of)
	flags.StringVar(&v.listen, "listen", defaultListen, "loopback address of the HTTP API; a proxy with TLS takes calls from elsewhere")
	flags.StringVar(&v.store, "store", "", "directory or s3 URI of manifests and their plans, which all runners of the queue share")
	flags.StringSliceVar(&v.plans, "plans", nil, "directories and URIs below which other plans of runs may be; may be repeated (default none)")
	flags.BoolVar(&v.approvedOnly, "approved-plans-only", false, "execute only plans below --plans, and take no manifests")
	flags.StringVar(&v.o.Tenant, "tenant", "", "tenant of the runs")
	flags.StringVar(&v.o.Project, "project", "", "project of the runs")
	flags.StringVar(&v.o.Environment, "environment", "", "environment of the runs")
	flags.StringVar(&v.o.Queue, "queue", runner.DefaultQueue, "queue of the runs")
	flags.StringVar(&v.o.Worker, "worker", "", "name of this process for people (default: the name of the machine)")
	flags.StringVar(&v.o.DefaultExecutor, "default-executor", defaultExecutor, "executor of task steps that name none")
	flags.IntVar(&v.o.Max, "max", 16, "runs that are executed at the same time, 1 to 100")
	flags.DurationVar(&v.o.TTL, "lease-ttl", 30*time.Second, "how long a run stays with a runner that was killed, 1s to 1h")
	flags.DurationVar(&v.o.Grace, "grace", 30*time.Second, "how long the steps that are executed may go on when the process is to end, 1s to 1h")
	flags.StringVar(&v.logLevel, "log-level", "info", "lowest level that is logged: debug, info, warn or error")
	session.Complete(cmd, "log-level", "debug", "info", "warn", "error")
	return cmd
}

func (a *app) serve(ctx context.Context, v *serving) (err error) {
	for _, f := range [][2]string{{"store", v.store}, {"tenant", v.o.Tenant}, {"project", v.o.Project}, {"environment", v.o.Environment}} {
		if f[1] == "" {
			return output.UsageError("--%s is required", f[0])
		}
	}
	if err := checkListen("listen", v.listen); err != nil {
		return err
	}
	if v.o.Max < 1 || v.o.Max > maxRuns {
		return output.UsageError("--max is %d: write 1 to %d", v.o.Max, maxRuns)
	}
	if v.o.TTL < minTTL || v.o.TTL > maxTTL {
		return output.UsageError("--lease-ttl is %v: write %v to %v", v.o.TTL, minTTL, maxTTL)
	}
	if v.o.Grace < minTTL || v.o.Grace > maxTTL {
		return output.UsageError("--grace is %v: write %v to %v", v.o.Grace, minTTL, maxTTL)
	}
	if v.o.Logger, err = output.NewLogger(a.Stderr, v.logLevel, "text"); err != nil {
		return err
	}
	if v.trusting, err = a.trusting(); err != nil {
		return err
	}
	if v.o.Client, err = a.dial(v.o.Logger, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.o.Client.Close()) }()
	v.o.As = a.as
	return a.start(ctx, v)
}

// Limits of the server (QUE-6).
const (
	maxRuns        = 100
	minTTL, maxTTL = time.Second, time.Hour
)

// checkListen refuses an address that other machines reach: the API has no TLS.
func checkListen(flag, address string) error {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && !ip.IsLoopback() {
		return output.UsageError("--%s is %q: name an address of loopback, such as %s, and let a proxy with TLS take calls from elsewhere", flag, address, defaultListen)
	}
	return nil
}
