package raft

import (
	"errors"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/prometheus/client_golang/prometheus"
)

// TestLogStoreFails proves D3: whatever the log answers with an error, the owner hears of it.
func TestLogStoreFails(t *testing.T) {
	w, err := wal.Open(t.TempDir(), wal.WithSegmentSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	var told []error
	s := &logStore{wal: w, writes: make(chan struct{}, 1), applied: func() uint64 { return 0 }, metrics: newMetrics(prometheus.NewRegistry()), fail: func(err error) { told = append(told, err) }}
	for i := range uint64(3) {
		if err := s.StoreLog(&hraft.Log{Index: i + 1, Term: 1, Data: []byte("data")}); err != nil {
			t.Fatal(err)
		}
	}
	var l hraft.Log
	if err := s.GetLog(2, &l); err != nil || l.Index != 2 || string(l.Data) != "data" {
		t.Errorf("entry %+v, error %v", l, err)
	}
	if err := s.GetLog(9, &l); !errors.Is(err, hraft.ErrLogNotFound) {
		t.Errorf("an entry that is not there gives %v", err)
	}
	if s.written.Load() != 12 || !s.IsMonotonic() {
		t.Errorf("%d bytes written", s.written.Load())
	}
	if err := s.DeleteRange(1, 1); err != nil || len(told) > 0 {
		t.Errorf("dropping the oldest entry gives %v, told %v", err, told)
	}
	// A hole, which raft-wal refuses.
	if err := s.StoreLog(&hraft.Log{Index: 7}); err == nil || len(told) != 1 {
		t.Errorf("a hole gives %v, told %v", err, told)
	}
	if err := s.DeleteRange(9, 9); err != nil || len(told) != 1 {
		t.Errorf("deleting nothing gives %v, told %v", err, told)
	}
	if err := s.StoreLog(&hraft.Log{Index: 4}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(3, 3); err == nil || len(told) != 2 {
		t.Errorf("deleting from the middle gives %v, told %v", err, told)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLog(&hraft.Log{Index: 5}); err == nil || len(told) != 3 {
		t.Errorf("writing to a closed log gives %v, told %v", err, told)
	}
}

// TestLogStalled: a write that hangs raises LOG_WRITE_STALLED once, until it is over.
func TestLogStalled(t *testing.T) {
	reg := prometheus.NewRegistry()
	n := &Node{metrics: newMetrics(reg), logs: &logStore{opened: time.Now().Add(-time.Hour)}}
	n.opts.EnsureDefaults()
	raised := n.checkStall(false)
	n.logs.writing.Store(int64(time.Hour - 2*stallLimit))
	for range 3 {
		if raised = n.checkStall(raised); !raised {
			t.Error("a write that hangs raises nothing")
		}
	}
	n.logs.writing.Store(0)
	raised = n.checkStall(raised)
	alerts, stall := gathered(t, reg, "runlog_raft_log_stall_alerts_total"), gathered(t, reg, "runlog_raft_log_stall_seconds")
	if raised || alerts != 1 || stall != 0 {
		t.Errorf("raised %v, %v alerts, stalled for %v", raised, alerts, stall)
	}
}

// gathered reads a counter or a gauge.
func gathered(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
