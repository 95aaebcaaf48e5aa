package raft

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// logStore is raft-wal with a cache, checksums, metrics, a watchdog and fail-stop: hashicorp/raft
// only logs a failed write and steps down, after which a later write could succeed over the hole
// (D3).
type logStore struct {
	wal *wal.WAL
	// writes has room for one, who writes or drops entries. raft-wal has a mutex for that, which
	// nobody should have to wait for while a disk hangs.
	writes  chan struct{}
	applied func() uint64 // the highest index that was applied
	// installed is the snapshot after which the log has yet to begin; nil: none.
	installed atomic.Pointer[place]
	metrics   *metrics
	fail      func(error)
	cache     entryCache
	// bytes of entries that lie in the log or were stored since the process began
	written atomic.Uint64
	// fresh is what was stored since the process began: entries, and their bytes.
	fresh struct{ entries, bytes atomic.Uint64 }
	// writing is when the write under way began, in nanoseconds since opened; 0: none is.
	writing atomic.Int64
	opened  time.Time
}

var (
	_ hraft.LogStore          = (*logStore)(nil)
	_ hraft.MonotonicLogStore = (*logStore)(nil)
)

func (s *logStore) FirstIndex() (uint64, error) { return s.wal.FirstIndex() }
func (s *logStore) LastIndex() (uint64, error)  { return s.wal.LastIndex() }

// IsMonotonic tells hashicorp/raft that the log has no holes.
func (s *logStore) IsMonotonic() bool { return s.wal.IsMonotonic() }

// GetLog reads an entry back. One that is damaged, or cannot be read, stops the node:
// hashicorp/raft panics over some such errors and goes on after others.
func (s *logStore) GetLog(index uint64, log *hraft.Log) error {
	if s.cache.get(index, log) {
		return nil
	}
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
	s.writes <- struct{}{}
	defer func() { <-s.writes }()
	start := time.Since(s.opened)
	s.writing.Store(int64(start))
	err := s.wal.StoreLogs(sealed(logs))
	s.writing.Store(0)
	if err != nil {
		err = fmt.Errorf("raft: write log entries %d to %d: %w", logs[0].Index, logs[len(logs)-1].Index, err)
		s.fail(err)
		return err
	}
	if s.installed.Load() != nil {
		s.installed.Store(nil)
	}
	s.metrics.logWrite.Observe((time.Since(s.opened) - start).Seconds())
	s.cache.add(logs)
	s.metrics.logBytes.Add(float64(size))
	s.written.Add(uint64(size))
	s.fresh.entries.Add(uint64(len(logs)))
	s.fresh.bytes.Add(uint64(size))
	return nil
}

// holding returns how many entries of the usual size have so many bytes.
func (s *logStore) holding(bytes uint64) uint64 {
	entries := s.fresh.entries.Load()
	return uint64(float64(bytes) / max(float64(s.fresh.bytes.Load()), 1) * float64(entries))
}

// countBytes begins the count with what lies in the log, so that a node which never lives for long
// truncates too.
func (s *logStore) countBytes(files walFiles, dir string) error {
	names, err := files.segments(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if info, err := files.disk.Stat(files.disk.PathJoin(dir, name)); err == nil {
			s.written.Add(uint64(info.Size()))
		}
	}
	return nil
}

// DeleteRange drops the log's oldest entries; or its newest ones when another leader overrules
// them; or all of them after a snapshot was installed. What was applied one by one was committed
// and is never overruled: who asks for that is no member of this group.
func (s *logStore) DeleteRange(first, last uint64) error {
	begin, err := s.wal.FirstIndex()
	if err != nil {
		s.fail(err)
		return err
	}
	end, err := s.wal.LastIndex()
	if err != nil {
		s.fail(err)
		return err
	}
	if snap := s.installed.Load(); snap != nil && first <= begin && last >= end {
		return s.beginAfter(*snap, begin, end)
	}
	if applied := s.applied(); last >= end && first <= applied {
		err := fmt.Errorf("raft: asked to drop log entries %d to %d, but everything up to %d is applied", first, last, applied)
		s.fail(err)
		return err
	}
	return s.delete(first, last)
}

func (s *logStore) delete(first, last uint64) error {
	s.writes <- struct{}{}
	defer func() { <-s.writes }()
	s.cache.clear()
	if err := s.wal.DeleteRange(first, last); err != nil {
		err = fmt.Errorf("raft: drop log entries %d to %d: %w", first, last, err)
		s.fail(err)
		return err
	}
	return nil
}

// beginAfter drops the log that a snapshot has replaced. hashicorp/raft then still believes that
// its last entry is the one that it was, which harms nothing while that lies before the snapshot.
// Where it does not, the log either agrees with the snapshot and stays, with what this node has
// acknowledged after it; or it was overruled, and goes, and the node must be started anew to know
// it.
func (s *logStore) beginAfter(snap place, first, last uint64) error {
	if last >= snap.index {
		agrees, err := s.holds(snap)
		if err != nil || agrees {
			return err
		}
	}
	if err := s.delete(first, last); err != nil || last < snap.index {
		return err
	}
	err := fmt.Errorf("raft: log entries up to %d were overruled by the snapshot of entry %d and are dropped; start the node again", last, snap.index)
	s.fail(err)
	return err
}

// holds tells whether an entry, by index and term, is in the log.
func (s *logStore) holds(p place) (bool, error) {
	var l hraft.Log
	err := s.GetLog(p.index, &l)
	if errors.Is(err, hraft.ErrLogNotFound) {
		return false, nil
	}
	return err == nil && l.Term == p.term, err
}

// stalled returns how long the write under way has taken; 0 when none is.
func (s *logStore) stalled() time.Duration {
	begun := s.writing.Load()
	if begun == 0 {
		return 0
	}
	return time.Since(s.opened) - time.Duration(begun)
}

// LogStalled tells whether the alert LOG_WRITE_STALLED stands.
func (n *Node) LogStalled() bool { return n.logs.stalled() > stallLimit }

const (
	// AlertLogStalled is raised when a write to the log takes longer than stallLimit: the disk
	// hangs, and with it every append.
	AlertLogStalled = "LOG_WRITE_STALLED"
	stallLimit      = time.Second
	stallCheck      = 250 * time.Millisecond
)

// watchLog raises an alert while a write to the log hangs: no error comes back from such a disk.
func (n *Node) watchLog() {
	tick := time.NewTicker(stallCheck)
	defer tick.Stop()
	raised := false
	for {
		select {
		case <-n.stop:
			return
		case <-tick.C:
		}
		raised = n.checkStall(raised)
	}
}

// checkStall tells whether the alert stands, and logs when it begins and when it ends.
func (n *Node) checkStall(raised bool) bool {
	stall := n.logs.stalled()
	n.metrics.logStall.Set(stall.Seconds())
	high := stall > stallLimit
	switch {
	case high && !raised:
		n.metrics.stallAlerts.Inc()
		n.opts.Logger.Error("a write to the log hangs, and every append with it: look at the disk", "alert", AlertLogStalled, "for", stall)
	case raised && !high:
		n.opts.Logger.Info("writes to the log go on", "alert", AlertLogStalled)
	}
	return high
}
