package storage

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	collectors []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, s *Store) *metrics {
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "runlog", Subsystem: "storage", Name: name, Help: help}, read)
	}
	m := &metrics{collectors: []prometheus.Collector{
		gauge("applied_index", "Log index of the last applied proposal.", func() float64 { return float64(s.Applied().Index) }),
		gauge("applied_events", "Events stored so far.", func() float64 { return float64(s.Applied().Events) }),
		gauge("disk_bytes", "Bytes on disk of the store.", func() float64 { return float64(s.db.Metrics().DiskSpaceUsage()) }),
		gauge("memtable_bytes", "Bytes in Pebble's memtables.", func() float64 { return float64(s.db.Metrics().MemTable.Size) }),
		gauge("compaction_debt_bytes", "Bytes that Pebble has yet to compact.", func() float64 { return float64(s.db.Metrics().Compact.EstimatedDebt) }),
		gauge("l0_files", "Files in level 0.", func() float64 { return float64(s.db.Metrics().Levels[0].TablesCount) }),
	}}
	reg.MustRegister(m.collectors...)
	return m
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.collectors {
		reg.Unregister(c)
	}
}
