package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// observe serves metrics and health at --metrics-listen until end is called. It serves nothing
// else, so it may be opened to a monitor.
func (a *app) observe() (end func(), err error) {
	a.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "runlog_temporal_ready", Help: "1 while the worker takes runs and steps."}, func() float64 {
			if a.isWorking() {
				return 1
			}
			return 0
		}))
	if a.metricsListen == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", a.metricsListen)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w; name another address", err)
	}
	failures := slog.NewLogLogger(a.logger.Handler(), slog.LevelWarn)
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{ErrorLog: failures}))
	pages.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	pages.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.isWorking() {
			http.Error(w, "the worker starts or stops", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	})
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10, ErrorLog: failures}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.logger.Error("cannot serve metrics", "err", err)
		}
	}()
	a.logger.Info("metrics are served", "listen", l.Addr())
	return func() { _ = server.Close(); <-served }, nil
}

// works says that the worker takes runs and steps, until ctx ends.
func (a *app) works(ctx context.Context) {
	err := ctx.Err
	a.working.Store(&err)
}

func (a *app) isWorking() bool {
	err := a.working.Load()
	return err != nil && (*err)() == nil
}
