package queue

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage/machine/queue"
)

// metrics of a node. Their number does not grow with queues or runs.
type metrics struct {
	requests        *prometheus.CounterVec
	leases, expired prometheus.Counter
	waiting         prometheus.GaugeFunc
	started         prometheus.Histogram
	runs            *runsCollector
}

// repeated is the disposition of a request that was made before.
const repeated = "REPEATED"

func newMetrics(s *Service) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "runlog", Subsystem: "queue", Name: name, Help: help})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "queue", Name: "requests_total",
			Help: "Requests for runs that this node has answered as the leader, by disposition; REPEATED: made before (QUE-2).",
		}, []string{"disposition"}),
		leases:  counter("leases_total", "Leases that this node has given as the leader (QUE-6)."),
		expired: counter("lease_expired_total", "Leases that have expired while this node led: their workers neither renewed nor released them (QUE-9)."),
		waiting: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "queue", Name: "waiting_calls", Help: "Calls of LeaseRuns that wait for a run at this node.",
		}, func() float64 { return float64(s.waiters.count()) }),
		started: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "queue", Name: "start_seconds",
			Help:    "Time from a request to the first release STARTED of its run.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}),
		runs: newRunsCollector(s),
	}
	for _, d := range []string{"READY", "QUEUED", "DELAYED", repeated} {
		m.requests.WithLabelValues(d)
	}
	s.opts.Registry.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.leases, m.expired, m.waiting, m.started, m.runs}
}

func (m *metrics) unregister(reg *prometheus.Registry) {
	for _, c := range m.collectors() {
		reg.Unregister(c)
	}
}

// runsCollector counts the runs of queues when it is asked, on the leader alone: so the sum over
// all nodes is that of the cluster.
type runsCollector struct {
	s                   *Service
	runs, oldest, stuck *prometheus.Desc
	idle                stuck
}

// countedQueues bounds the queues that are counted. Beyond it the numbers are too low.
const countedQueues = 20_000

func newRunsCollector(s *Service) *runsCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("runlog", "queue", name), help, labels, nil)
	}
	return &runsCollector{
		s:      s,
		runs:   desc("runs", "Requested runs that have not ended, by state. The leader alone exports it.", "state"),
		oldest: desc("oldest_ready_seconds", "How long ago the oldest ready run was requested, in any queue; 0: none is ready."),
		stuck: desc("stuck_seconds", "How long a queue has had ready runs and a free slot, without a worker that leases any, releases one or ends one; 0: none has. "+
			"It is counted from one read of the metric to the next."),
	}
}

// Describe implements prometheus.Collector.
func (c *runsCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.runs
	to <- c.oldest
	to <- c.stuck
}

// Collect implements prometheus.Collector.
func (c *runsCollector) Collect(to chan<- prometheus.Metric) {
	if !c.s.node.Leading() {
		return
	}
	t, leasable, err := c.s.totals()
	if err != nil {
		to <- prometheus.NewInvalidMetric(c.runs, err)
		return
	}
	for state, n := range t.runs {
		if state != int(queue.Ended) {
			to <- prometheus.MustNewConstMetric(c.runs, prometheus.GaugeValue, float64(n), queue.State(state).String())
		}
	}
	to <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, t.oldest.Seconds())
	to <- prometheus.MustNewConstMetric(c.stuck, prometheus.GaugeValue, c.idle.longest(leasable, c.s.now()).Seconds())
}

// totals of all queues.
type totals struct {
	runs   [queue.Exhausted + 1]uint64 // by state
	oldest time.Duration
}

// totals counts, and returns the queues that have a run that may be leased. While the cluster is
// held, none has.
func (s *Service) totals() (t totals, leasable []*queue.Queue, err error) {
	now, held := s.now(), s.node.Store().Applied().Held
	var behind queue.Name
	for counted, more := 0, true; more && counted < countedQueues; counted += largestPage {
		var list []*queue.Queue
		if list, more, err = queue.List(s.node.Store(), queue.Name{}, behind, largestPage); err != nil {
			return t, nil, err
		}
		for _, q := range list {
			behind = q.Name
			t.runs[queue.Ready] += q.Ready
			t.runs[queue.Delayed] += q.Delayed
			t.runs[queue.Leased] += q.Leased
			t.runs[queue.Running] += q.Running
			t.runs[queue.Exhausted] += q.Exhausted
			if q.Ready == 0 {
				continue
			}
			t.oldest = max(t.oldest, time.Duration(now-q.OldestAt))
			if q.Leasable() > 0 && !held {
				leasable = append(leasable, q)
			}
		}
	}
	return t, leasable, nil
}
