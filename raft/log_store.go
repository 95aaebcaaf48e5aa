package raft

import (
	"fmt"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// logStore is raft-wal with metrics and fail-stop: hashicorp/raft only logs a failed write and steps
// down, after which a later write could succeed over the hole (D3).
type logStore struct {
	wal     *wal.WAL
	metrics *metrics
	fail    func(error)
	written atomic.Uint64 // bytes of entries stored since the process began
}

var (
	_ hraft.LogStore          = (*logStore)(nil)
	_ hraft.MonotonicLogStore = (*logStore)(nil)
)

func (s *logStore) FirstIndex() (uint64, error) { return s.wal.FirstIndex() }
func (s *logStore) LastIndex() (uint64, error)  { return s.wal.LastIndex() }

// IsMonotonic tells hashicorp/raft that the log has no holes.
func (s *logStore) IsMonotonic() bool { return s.wal.IsMonotonic() }

func (s *logStore) GetLog(index uint64, log *hraft.Log) error { return s.wal.GetLog(index, log) }

func (s *logStore) StoreLog(log *hraft.Log) error { return s.StoreLogs([]*hraft.Log{log}) }

// StoreLogs returns when the entries are on stable storage.
func (s *logStore) StoreLogs(logs []*hraft.Log) error {
	size := 0
	for _, l := range logs {
		size += len(l.Data)
	}
	start := time.Now()
	if err := s.wal.StoreLogs(logs); err != nil {
		err = fmt.Errorf("raft: write log entries %d to %d: %w", logs[0].Index, logs[len(logs)-1].Index, err)
		s.fail(err)
		return err
	}
	s.metrics.logWrite.Observe(time.Since(start).Seconds())
	s.metrics.logBytes.Add(float64(size))
	s.written.Add(uint64(size))
	return nil
}

func (s *logStore) DeleteRange(first, last uint64) error {
	if err := s.wal.DeleteRange(first, last); err != nil {
		err = fmt.Errorf("raft: drop log entries %d to %d: %w", first, last, err)
		s.fail(err)
		return err
	}
	return nil
}
