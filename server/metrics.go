package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

type metrics struct {
	calls      *prometheus.HistogramVec
	streams    *prometheus.GaugeVec
	events     *prometheus.CounterVec
	inserted   prometheus.Counter
	duplicates prometheus.Counter
	diverged   prometheus.Counter
	skewAlerts prometheus.Counter
	lagAlerts  prometheus.Counter
	clockSkew  prometheus.Gauge
	diskFree   prometheus.Gauge
	diskAlerts prometheus.Counter
	keyAlerts  prometheus.Counter

	diskRefused prometheus.Counter
	slowWatches prometheus.Counter
	backupSent  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "append", Name: "events_total",
		Help: "Events answered for, by what became of them: inserted, or duplicate of a stored one (IDM-6).",
	}, []string{"result"})
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "rpc", Name: "seconds",
			Help:    "Time to answer a call, by method and gRPC code.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 18),
		}, []string{"method", "code"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "rpc", Name: "streams",
			Help: "Open streams, by method.",
		}, []string{"method"}),
		events:     events,
		inserted:   events.WithLabelValues("inserted"),
		duplicates: events.WithLabelValues("duplicate"),
		diverged: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "append", Name: "diverged_total",
			Help: "Duplicates whose content differs from the stored event (IDM-7).",
		}),
		lagAlerts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "projector", Name: "lag_alerts_total",
			Help: "Times that PROJECTOR_LAG_HIGH was raised (PRJ-11).",
		}),
		skewAlerts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "clock", Name: "skew_alerts_total",
			Help: "Times that CLOCK_SKEW_HIGH was raised (APP-5).",
		}),
		diskFree: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "disk", Name: "free_bytes",
			Help: "Bytes that the node may still write to the file system of its data directory.",
		}),
		diskAlerts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "disk", Name: "low_alerts_total",
			Help: "Times that DISK_LOW was raised, and appends refused.",
		}),
		keyAlerts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "audit", Name: "key_missing_alerts_total",
			Help: "Times that AUDIT_KEY_MISSING was raised.",
		}),
		diskRefused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "disk", Name: "refused_total",
			Help: "Requests to append that were refused because the disk was nearly full.",
		}),
		slowWatches: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "watch", Name: "slow_consumers_total",
			Help: "Watches of events that were ended because their reader took none for too long (WATCH-3).",
		}),
		backupSent: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "backup", Name: "sent_bytes_total",
			Help: "Bytes of files that were sent to backups.",
		}),
		clockSkew: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "clock", Name: "skew_seconds",
			Help: "How far the leader's clock is behind the last persistedAt; 0 when it is not (APP-5).",
		}),
	}
	reg.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.streams, m.events, m.diverged, m.skewAlerts, m.lagAlerts, m.clockSkew, m.diskFree, m.diskAlerts, m.keyAlerts, m.diskRefused, m.slowWatches, m.backupSent}
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.collectors() {
		reg.Unregister(c)
	}
}

func (m *metrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := next(ctx, req)
	m.calls.WithLabelValues(info.FullMethod, status.Code(err).String()).Observe(time.Since(start).Seconds())
	return resp, err
}

func (m *metrics) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	open := m.streams.WithLabelValues(info.FullMethod)
	open.Inc()
	defer open.Dec()
	return next(srv, ss)
}
