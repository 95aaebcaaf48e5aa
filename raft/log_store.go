package raft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// logStore is raft-wal with metrics and fail-stop: hashicorp/raft only logs a failed write and steps
// down, after which a later write could succeed over the hole (D3).
type logStore struct {
	wal     *wal.WAL
	applied func() uint64 // the highest index that was applied
	metrics *metrics
	fail    func(error)
	written atomic.Uint64 // bytes of entries that lie in the log or were stored since the process began
}

var (
	_ hraft.LogStore          = (*logStore)(nil)
	_ hraft.MonotonicLogStore = (*logStore)(nil)
)

func (s *logStore) FirstIndex() (uint64, error) { return s.wal.FirstIndex() }
func (s *logStore) LastIndex() (uint64, error)  { return s.wal.LastIndex() }

// IsMonotonic tells hashicorp/raft that the log has no holes.
func (s *logStore) IsMonotonic() bool { return s.wal.IsMonotonic() }

// GetLog reads an entry back. One that is damaged, or cannot be read, stops the node: hashicorp/raft panics
// over some such errors and goes on after others.
func (s *logStore) GetLog(index uint64, log *hraft.Log) error {
	err := s.wal.GetLog(index, log)
	if errors.Is(err, hraft.ErrLogNotFound) {
		return err
	}
	if err == nil {
		err = unseal(log, index)
	}
	if err != nil {
		err = fmt.Errorf("raft: read log entry %d: %w", index, err)
		s.fail(err)
	}
	return err
}

func (s *logStore) StoreLog(log *hraft.Log) error { return s.StoreLogs([]*hraft.Log{log}) }

// StoreLogs returns when the entries are on stable storage.
func (s *logStore) StoreLogs(logs []*hraft.Log) error {
	size := 0
	for _, l := range logs {
		size += len(l.Data)
	}
	start := time.Now()
	if err := s.wal.StoreLogs(sealed(logs)); err != nil {
		err = fmt.Errorf("raft: write log entries %d to %d: %w", logs[0].Index, logs[len(logs)-1].Index, err)
		s.fail(err)
		return err
	}
	s.metrics.logWrite.Observe(time.Since(start).Seconds())
	s.metrics.logBytes.Add(float64(size))
	s.written.Add(uint64(size))
	return nil
}

// countBytes begins the count with what lies in the log, so that a node which never lives for long
// truncates too.
func (s *logStore) countBytes(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil && filepath.Ext(f.Name()) == ".wal" {
			s.written.Add(uint64(info.Size()))
		}
	}
	return nil
}

// DeleteRange drops the log's oldest entries, or its newest ones when another leader overrules them. What
// was applied was committed and is never overruled: who asks for that is no member of this group.
func (s *logStore) DeleteRange(first, last uint64) error {
	end, err := s.wal.LastIndex()
	if err != nil {
		s.fail(err)
		return err
	}
	if applied := s.applied(); last >= end && first <= applied {
		err := fmt.Errorf("raft: asked to drop log entries %d to %d, but everything up to %d is applied", first, last, applied)
		s.fail(err)
		return err
	}
	if err := s.wal.DeleteRange(first, last); err != nil {
		err = fmt.Errorf("raft: drop log entries %d to %d: %w", first, last, err)
		s.fail(err)
		return err
	}
	return nil
}
