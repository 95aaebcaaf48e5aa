package server

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"runlog/proto/contract/secrets"
)

// What a node does with an append that has what looks like a secret.
const (
	SecretRefuse = "refuse"
	SecretReport = "report"
	SecretOff    = "off"
)

// SecretScans lists the values of Options.SecretScan.
var SecretScans = []string{SecretRefuse, SecretReport, SecretOff}

// secretScan judges payloads with what looks like a secret, and counts them.
type secretScan struct {
	refuse bool
	log    *slog.Logger
	lines  *rate.Limiter // of the log
	counts *prometheus.CounterVec
}

func newSecretScan(mode string, log *slog.Logger) *secretScan {
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "append", Name: "secrets_total",
		Help: "Payloads with what looks like a secret, by its kind, and whether they were refused or only reported.",
	}, []string{"kind", "result"})
	for _, kind := range secrets.Kinds() {
		for _, result := range []string{"refused", "reported"} {
			counts.WithLabelValues(string(kind), result)
		}
	}
	return &secretScan{refuse: mode == SecretRefuse, log: log, lines: rate.NewLimiter(rate.Every(time.Second), 1), counts: counts}
}

// judge counts a payload and reports whether to refuse it. The log names the run and the kind, not
// the place: a path has names that the producer chose.
func (s *secretScan) judge(runID string, kind secrets.Kind) (refuse bool) {
	result := "reported"
	if s.refuse {
		result = "refused"
	}
	s.counts.WithLabelValues(string(kind), result).Inc()
	if s.lines.Allow() {
		s.log.Warn("payload with what looks like a secret", "run", runID, "kind", kind, "result", result)
	}
	return s.refuse
}
