package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/client/address"
	"runlog/client/command/output"
	"runlog/engine/runner"
)

// maxAttempts is how often a call of the log is tried for a caller of the API. The calls of the
// runner itself are tried until they succeed, as engines want it: the log may be away for long.
const maxAttempts = 30

// closePatience is how long calls that are under way may take at the end.
const closePatience = 5 * time.Second

// start makes a runner of a client, and has it execute runs until ctx ends.
func (a *app) start(ctx context.Context, v *serving) (err error) {
	if v.o.Worker == "" {
		if v.o.Worker, err = os.Hostname(); err != nil {
			return err
		}
	}
	if err := v.stores(); err != nil {
		return err
	}
	if err := a.equip(v); err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	v.o.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"tenant": v.o.Tenant, "project": v.o.Project, "environment": v.o.Environment}, metrics)
	v.o.Metrics = promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(v.o.Logger.Handler(), slog.LevelWarn)})
	r, err := runner.New(v.o)
	if err != nil {
		return output.UsageError("%v", err)
	}
	if err := v.publish(ctx, r.Capabilities()); err != nil && ctx.Err() == nil {
		return err // With a signal, it would say nothing about the store.
	}
	if err := v.greet(ctx, r); err != nil {
		return err
	}
	return execute(ctx, r, v)
}

// greetPatience is how long the log may take to answer before the runner says that it waits.
const greetPatience = 5 * time.Second

// greet asks the log for the identity of the runner. Credentials that it refuses would fail each
// call, and without its roles a runner would fail each run. A log that does not answer may do so
// later.
func (v *serving) greet(ctx context.Context, r *runner.Runner) error {
	patient, cancel := context.WithTimeout(ctx, greetPatience)
	defer cancel()
	err := r.Permitted(patient)
	if missing, ok := errors.AsType[*runner.RolesError](err); ok {
		return output.Errorf(output.ExitForbidden, "%v: runlog token create runner --tenant %s --role producer --role reader", missing, v.o.Tenant)
	}
	e, ok := errors.AsType[*client.Error](err)
	if ok && e.Code == codes.Unauthenticated {
		return err
	}
	// The client logs failures. A log that is silent makes none.
	if ok && e.Code == codes.DeadlineExceeded && ctx.Err() == nil {
		v.o.Logger.Warn("the log does not answer; the runner waits for it", "err", err)
	}
	return nil
}

// trusting reports whether only users of this machine can request runs: all servers are on it, and
// the runner has no credentials.
func (a *app) trusting() (bool, error) {
	servers, err := a.Servers()
	if err != nil {
		return false, err
	}
	opts, err := a.ClientOptions(client.Options{})
	elsewhere := func(server string) bool { return !address.OnThisMachine(server) }
	return opts.Token == "" && opts.TLSFiles == nil && !slices.ContainsFunc(servers, elsewhere), err
}

// dial returns a client of the cluster. token is that of a caller; nil: the session's.
func (a *app) dial(log *slog.Logger, token *string) (*client.Client, error) {
	servers, err := a.Servers()
	if err != nil {
		return nil, err
	}
	opts, err := a.ClientOptions(client.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	if token != nil {
		opts.MaxAttempts = maxAttempts
		// Neither the certificate of the runner is its callers', nor the file of its token.
		if opts.Token, opts.TokenFiles = *token, nil; opts.TLSFiles != nil {
			opts.TLS, opts.TLSFiles = opts.TLSFiles.Last().Clone(), nil
			opts.TLS.Certificates = nil
		}
	}
	return client.Dial(strings.Join(servers, ","), opts)
}

// as returns a client for a caller of the API.
func (a *app) as(authorization string) (c *client.Client, done func(), err error) {
	token, ok := strings.CutPrefix(authorization, "Bearer ")
	if authorization != "" && !ok {
		return nil, nil, errors.New("the header Authorization is not \"Bearer TOKEN\"")
	}
	if c, err = a.dial(nil, &token); err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Close() }, nil
}

// execute executes runs and serves the API until ctx ends or the API cannot be served.
func execute(ctx context.Context, r *runner.Runner, v *serving) error {
	l, err := net.Listen("tcp", v.listen)
	if err != nil {
		return output.Errorf(output.ExitFailed, "runner: cannot listen for the API: %v; another runner may have the address: name another one", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{
		Handler: r.Handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(v.o.Logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(l)
		stop()
	}()
	v.o.Logger.Info("runner serves", "listen", l.Addr(), "tenant", v.o.Tenant, "project", v.o.Project, "environment", v.o.Environment,
		"queue", v.o.Queue, "executors", v.o.Executors.Names(), "store", v.o.Base)
	executing := r.Run(ctx)
	if ctx.Err() != nil {
		executing = nil // It has ended as asked.
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close() // Calls that wait for runs go on elsewhere.
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(executing, output.Errorf(output.ExitFailed, "runner: cannot serve the API: %v", err))
	}
	return executing
}
