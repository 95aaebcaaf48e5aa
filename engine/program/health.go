package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health shows the metrics of a worker, and whether it works.
type Health struct {
	// Metrics are those that are shown.
	Metrics *prometheus.Registry

	listen string
	// working is set once the worker takes runs and steps. Its error says that it stops.
	working atomic.Pointer[func() error]
}

// NewHealth returns the health of a worker that does not work yet.
func NewHealth() *Health { return &Health{Metrics: prometheus.NewRegistry()} }

// Register adds the flags to a set.
func (h *Health) Register(set *flag.FlagSet) {
	set.StringVar(&h.listen, "metrics-listen", "", "address of /metrics, /healthz and /readyz, such as 127.0.0.1:9464 (default none)")
}

// Serve serves metrics and health at --metrics-listen until end is called. It serves nothing else,
// so it may be opened to a monitor. The gauge runlog_ENGINE_ready says whether the worker works.
func (h *Health) Serve(engine string, logger *slog.Logger) (end func(), err error) {
	h.Metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "runlog_" + engine + "_ready", Help: "1 while the worker takes runs and steps."}, func() float64 {
			if h.isWorking() {
				return 1
			}
			return 0
		}))
	if h.listen == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", h.listen)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w; name another address", err)
	}
	failures := slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	server := &http.Server{Handler: h.pages(failures), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10, ErrorLog: failures}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("cannot serve metrics", "err", err)
		}
	}()
	logger.Info("metrics are served", "listen", l.Addr())
	return func() { _ = server.Close(); <-served }, nil
}

func (h *Health) pages(failures promhttp.Logger) http.Handler {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", promhttp.HandlerFor(h.Metrics, promhttp.HandlerOpts{ErrorLog: failures}))
	pages.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	pages.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !h.isWorking() {
			http.Error(w, "the worker starts or stops", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	})
	return pages
}

// Works says that the worker takes runs and steps, until ctx ends.
func (h *Health) Works(ctx context.Context) {
	err := ctx.Err
	h.working.Store(&err)
}

func (h *Health) isWorking() bool {
	err := h.working.Load()
	return err != nil && (*err)() == nil
}
