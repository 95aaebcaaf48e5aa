package subscriptions

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/server/subscriptions/delivery"
	"runlog/storage/machine/subscription"
)

// maxSeries bounds the subscriptions that metrics name. Of the others they have only the sum, under
// empty labels.
const maxSeries = 200

// metrics tell how far the subscriptions are that this node delivers (BUS-9).
type metrics struct {
	dispatcher *delivery.Dispatcher
	clock      func() time.Time

	lagEvents, lagSeconds, inFlight, letters, held, paused, acknowledged *prometheus.Desc
}

func newMetrics(d *delivery.Dispatcher, clock func() time.Time) *metrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("runlog_subscription_"+name, help, []string{"tenant", "subscription"}, nil)
	}
	return &metrics{
		dispatcher: d, clock: clock,
		lagEvents:    desc("lag_events", "Events that are not acknowledged; those that were not read yet count whether or not they match."),
		lagSeconds:   desc("lag_seconds", "Age of the oldest event that was read and is not acknowledged."),
		inFlight:     desc("in_flight", "Deliveries under way."),
		letters:      desc("dead_letters", "Events that are parked."),
		held:         desc("held_runs", "Runs whose events wait because of a dead letter."),
		paused:       desc("paused", "1 if an operator or an answer 410 has paused it; of several subscriptions, how many are."),
		acknowledged: desc("acknowledged_total", "Events that were acknowledged since the subscription was made."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{m.lagEvents, m.lagSeconds, m.inFlight, m.letters, m.held, m.paused, m.acknowledged} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	n, now := 0, m.clock()
	var rest delivery.Status
	oldest, paused := 0.0, 0.0
	m.dispatcher.Each(func(name subscription.Name, st delivery.Status) bool {
		if n++; n <= maxSeries {
			m.collect(ch, name.Tenant, name.ID, &st, seconds(st.OldestAt, now), one(st.Paused))
			return true
		}
		rest.Waiting += st.Waiting
		rest.Behind += st.Behind
		rest.InFlight += st.InFlight
		rest.Letters += st.Letters
		rest.Held += st.Held
		paused += one(st.Paused)
		rest.Acknowledged += st.Acknowledged
		oldest = max(oldest, seconds(st.OldestAt, now))
		return true
	})
	if n > maxSeries {
		m.collect(ch, "", "", &rest, oldest, paused)
	}
}

func (m *metrics) collect(ch chan<- prometheus.Metric, tenant, id string, st *delivery.Status, oldest, paused float64) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, tenant, id)
	}
	gauge(m.lagEvents, float64(st.Waiting)+float64(st.Behind))
	gauge(m.lagSeconds, oldest)
	gauge(m.inFlight, float64(st.InFlight))
	gauge(m.letters, float64(st.Letters))
	gauge(m.held, float64(st.Held))
	gauge(m.paused, paused)
	ch <- prometheus.MustNewConstMetric(m.acknowledged, prometheus.CounterValue, float64(st.Acknowledged), tenant, id)
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
