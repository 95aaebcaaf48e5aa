package storage

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	collectors []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, s *Store) *metrics {
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "storage", Name: name, Help: help,
		}, read)
	}
	database := func(read func(*pebble.Metrics) float64) func() float64 {
		return func() float64 {
			db, release, err := s.directory.Acquire()
			if err != nil {
				return 0 // closed
			}
			defer release()
			return read(db.Metrics())
		}
	}
	counter := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "storage", Name: name, Help: help,
		}, read)
	}
	m := &metrics{collectors: []prometheus.Collector{
		gauge("applied_index", "Log index of the last applied proposal.",
			func() float64 { return float64(s.Applied().Index) }),
		gauge("applied_events", "Events stored so far.",
			func() float64 { return float64(s.Applied().Events) }),
		gauge("disk_bytes", "Bytes on disk of the store.",
			database(func(m *pebble.Metrics) float64 { return float64(m.DiskSpaceUsage()) })),
		counter("written_bytes_total",
			"Bytes that Pebble has written by flushes and compactions since the database was opened.", database(written)),
		gauge("memtable_bytes", "Bytes in Pebble's memtables.",
			database(func(m *pebble.Metrics) float64 { return float64(m.MemTable.Size) })),
		gauge("compaction_debt_bytes", "Bytes that Pebble has yet to compact.",
			database(func(m *pebble.Metrics) float64 { return float64(m.Compact.EstimatedDebt) })),
		gauge("l0_files", "Files in level 0.",
			database(func(m *pebble.Metrics) float64 { return float64(m.Levels[0].TablesCount) })),
	}}
	reg.MustRegister(m.collectors...)
	return m
}

func written(m *pebble.Metrics) (bytes float64) {
	for i := range m.Levels {
		bytes += float64(m.Levels[i].TableBytesFlushed + m.Levels[i].TableBytesCompacted)
	}
	return bytes
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.collectors {
		reg.Unregister(c)
	}
}
