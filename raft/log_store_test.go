package raft

import (
	"errors"
	"testing"

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
	s := &logStore{wal: w, applied: func() uint64 { return 0 }, metrics: newMetrics(prometheus.NewRegistry()), fail: func(err error) { told = append(told, err) }}
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
