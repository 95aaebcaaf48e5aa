package cosign

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/audit/witness"
)

// Results of a request to a witness, as the metric has them.
const (
	resultSigned      = "signed"
	resultConflict    = "conflict"
	resultRefused     = "refused"
	resultUnreachable = "unreachable"
	resultFailed      = "failed" // by this node
)

func resultOf(err error) string {
	switch {
	case errors.Is(err, witness.ErrConflict):
		return resultConflict
	case errors.Is(err, witness.ErrRefused):
		return resultRefused
	case errors.Is(err, witness.ErrUnreachable):
		return resultUnreachable
	default:
		return resultFailed
	}
}

// report tells of all askers: an alert stands while one of them has a reason for it.
type report struct {
	alerts   Alerts
	log      *slog.Logger
	registry *prometheus.Registry

	answers           *prometheus.CounterVec
	behind, conflicts *prometheus.GaugeVec

	mu sync.Mutex
	// late and conflicting are the names of the witnesses for which an alert stands.
	late, conflicting map[string]bool
}

func newReport(opts *Options) *report {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "runlog", Subsystem: "witness", Name: name, Help: help}, []string{"witness"})
	}
	r := &report{
		alerts: opts.Alerts, log: opts.Logger, registry: opts.Registry, late: map[string]bool{}, conflicting: map[string]bool{},
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "witness", Name: "requests_total", Help: "Requests to witnesses to sign a checkpoint, by what became of them.",
		}, []string{"witness", "result"}),
		behind:    gauge("behind_seconds", "For how long a witness has not signed the newest checkpoint, at the leader; else 0."),
		conflicts: gauge("conflict", "1 while a witness says that it has signed another history of the log (WITNESS_CONFLICT), at the leader."),
	}
	opts.Registry.MustRegister(r.answers, r.behind, r.conflicts)
	for _, w := range opts.Witnesses {
		r.set(w.Name, &state{})
	}
	return r
}

func (r *report) close() {
	for _, c := range []prometheus.Collector{r.answers, r.behind, r.conflicts} {
		r.registry.Unregister(c)
	}
	r.alerts.Set(AlertBehind, false)
	r.alerts.Set(AlertConflict, false)
}

func (r *report) answered(name, result string) { r.answers.WithLabelValues(name, result).Inc() }

// set takes the state of the asker of a witness.
func (r *report) set(name string, s *state) {
	since := time.Duration(0)
	if !s.unsigned.IsZero() {
		since = time.Since(s.unsigned)
	}
	r.behind.WithLabelValues(name).Set(since.Seconds())
	conflict := 0.0
	if s.conflict {
		conflict = 1
	}
	r.conflicts.WithLabelValues(name).Set(conflict)
	r.mu.Lock()
	defer r.mu.Unlock()
	if late := since > Patience; late && !r.late[name] {
		r.log.Warn("witness has not signed for long", "alert", AlertBehind, "witness", name, "since", s.unsigned.UTC(),
			"do", "look whether the witness runs, can be reached, and follows this log; or start the nodes with a policy without it")
	}
	r.late[name], r.conflicting[name] = since > Patience, s.conflict
	r.alerts.Set(AlertBehind, anyOf(r.late))
	r.alerts.Set(AlertConflict, anyOf(r.conflicting))
}

func anyOf(set map[string]bool) bool {
	for _, on := range set {
		if on {
			return true
		}
	}
	return false
}
