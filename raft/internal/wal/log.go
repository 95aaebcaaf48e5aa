package wal

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
)

// ErrOverruled means that a snapshot has overruled the log of a node that runs. The node must start
// again to learn that: hashicorp/raft cannot reload its log.
var ErrOverruled = errors.New("raft: log was overruled")

// Log is the log store: raft-wal with checksums, a cache, metrics and fail-stop. After a failed
// write, hashicorp/raft only logs it and steps down. A later write could then succeed over the hole
// (D3).
//
// hashicorp/raft appends on one goroutine, drops the oldest entries on another, and reads on
// several.
type Log struct {
	// Set by Open, and never again.

	opts   Options
	wal    *raftwal.WAL // has locks of its own
	files  *segmentFiles
	opened time.Time

	// writes is a mutex with room for one writer or truncation. raft-wal has a mutex of its own; a
	// caller must not block on that one while a disk hangs. It guards own.
	writes chan struct{}
	own    drawn

	// tail is the newest entry; nil: it was dropped, or the log is empty. A writer stores it, with
	// writes, when the entry is on stable storage. Idle followers compare it with the leader's many
	// times a second, and so need not read the log.
	tail atomic.Pointer[EntryID]
	// installed is the snapshot after which the log has yet to begin; nil: none. BeginAfter stores
	// it when a snapshot is installed, and at a start for the newest record of one. The next append
	// clears it. In between, an empty log
	// takes only the entry right behind the snapshot, and the whole log from before it may be
	// dropped.
	installed atomic.Pointer[EntryID]
	cache     entryCache // has a lock of its own

	// What a writer counts, and other goroutines of the node read.

	// written counts the bytes of entries found at open and stored since.
	written atomic.Uint64
	// fresh counts the entries stored since open, and their bytes.
	fresh struct{ entries, bytes atomic.Uint64 }
	// writing is the start of the current write, in nanoseconds since opened; 0: no write.
	writing atomic.Int64
}

var (
	_ hraft.LogStore          = (*Log)(nil)
	_ hraft.MonotonicLogStore = (*Log)(nil)
)

// FirstIndex returns the index of the first entry, or 0 if the log is empty.
func (s *Log) FirstIndex() (uint64, error) { return s.wal.FirstIndex() }

// LastIndex returns the index of the last entry, or 0 if the log is empty.
func (s *Log) LastIndex() (uint64, error) { return s.wal.LastIndex() }

// IsMonotonic tells hashicorp/raft whether the indexes of the log have no holes.
func (s *Log) IsMonotonic() bool { return s.wal.IsMonotonic() }

// GetLog reads an entry. A damaged or unreadable entry stops the node: hashicorp/raft panics after
// some such errors and continues after others.
func (s *Log) GetLog(index uint64, log *hraft.Log) error {
	if s.cache.get(index, log) {
		return nil
	}
	err := s.read(index, log)
	// raft-wal v0.4.1 may close a dropped segment between a reader's look at the segments and its
	// read. Another look finds other segments.
	for again := 0; errors.Is(err, os.ErrClosed) && again < 10; again++ {
		err = s.read(index, log)
	}
	if errors.Is(err, hraft.ErrLogNotFound) {
		return err
	}
	if err == nil {
		err = unseal(log, index)
	}
	if err != nil {
		err = damaged(fmt.Errorf("raft: read log entry %d in %s: %w", index, s.opts.Dir, err))
		s.opts.Fail(err)
	}
	return err
}

// read reads an entry from the files. The decoder of raft-wal v0.4.1 panics on a length that is no
// number: such an entry is a damaged one.
func (s *Log) read(index uint64, log *hraft.Log) (err error) {
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("%w: index %d: %w", errDamaged, index, fault)
		default:
			panic(fault)
		}
	}()
	return s.wal.GetLog(index, log)
}

// Entry returns the identity of the entry at an index; zero: the log has none there.
func (s *Log) Entry(index uint64) (EntryID, error) {
	if tail := s.tail.Load(); tail != nil && tail.Index == index {
		return *tail, nil
	}
	var l hraft.Log
	err := s.GetLog(index, &l)
	if errors.Is(err, hraft.ErrLogNotFound) {
		return EntryID{}, nil
	}
	return IDOf(&l), err
}

// Holds reports whether the log has an entry, by index and term.
func (s *Log) Holds(p EntryID) (bool, error) {
	own, err := s.Entry(p.Index)
	return err == nil && own.Index == p.Index && own.Term == p.Term, err
}

// StoreLog returns when the entry is on stable storage.
func (s *Log) StoreLog(log *hraft.Log) error { return s.StoreLogs([]*hraft.Log{log}) }

// StoreLogs returns when the entries are on stable storage. There is at least one.
//
//  1. checkBegin, previous: the entries continue the log that is here.
//  2. sign: entries that this node makes get its nonce.
//  3. sealed, raft-wal: copies with a checksum are written and synced. After a failure the file may
//     have a part of them, so the node stops.
//  4. The cache and the tail follow the disk, never the other way: a reader sees no entry that a
//     power loss can take.
func (s *Log) StoreLogs(logs []*hraft.Log) error {
	size := 0
	for _, l := range logs {
		size += len(l.Data)
	}
	s.writes <- struct{}{}
	defer func() { <-s.writes }()
	if err := s.checkBegin(logs[0].Index); err != nil {
		return err
	}
	before, err := s.previous(logs[0])
	if err != nil {
		return err
	}
	s.own.sign(logs, before)
	start := time.Since(s.opened)
	s.writing.Store(int64(start))
	err = s.wal.StoreLogs(sealed(logs))
	s.writing.Store(0)
	if err != nil {
		err = fmt.Errorf("raft: write log entries %d to %d: %w", logs[0].Index, logs[len(logs)-1].Index, err)
		s.opts.Fail(err)
		return err
	}
	if s.installed.Load() != nil {
		s.installed.Store(nil)
	}
	s.opts.WriteSeconds.Observe((time.Since(s.opened) - start).Seconds())
	s.cache.add(logs)
	tail := IDOf(logs[len(logs)-1])
	s.tail.Store(&tail)
	s.opts.WriteBytes.Add(float64(size))
	s.written.Add(uint64(size))
	s.fresh.entries.Add(uint64(len(logs)))
	s.fresh.bytes.Add(uint64(size))
	return nil
}

// checkBegin refuses the first entry of an empty log if it is not the one right after the installed
// snapshot. Nothing is lost by that: the leader sends again.
func (s *Log) checkBegin(index uint64) error {
	snap := s.installed.Load()
	if snap == nil || index == snap.Index+1 {
		return nil
	}
	last, err := s.wal.LastIndex()
	if err == nil && last == 0 {
		err = fmt.Errorf("raft: write log entry %d: the log begins after the snapshot of entry %d", index, snap.Index)
	}
	return err
}

// previous returns the identity of the entry before l in this log, which may be the last one of the
// installed snapshot; zero: there is none. hashicorp/raft has compared its term with the leader's.
// If l names another nonce, the leader has another entry there: the log stops the node.
func (s *Log) previous(l *hraft.Log) (own EntryID, err error) {
	if snap := s.installed.Load(); snap != nil && snap.Index+1 == l.Index {
		own = *snap
	} else if l.Index > 1 {
		own, err = s.Entry(l.Index - 1)
	}
	if err != nil {
		return own, err
	}
	if unlike(own.Nonce, nonceBefore(l)) {
		err = s.opts.Conflict(own)
		s.opts.Fail(err)
	}
	return own, err
}

// DeleteRange drops the oldest entries, or the newest ones if another leader overrules them, or all
// of them after an install. Entries that were applied one by one are committed and never overruled:
// such a request comes from outside the group.
func (s *Log) DeleteRange(first, last uint64) error {
	begin, err := s.wal.FirstIndex()
	if err != nil {
		s.opts.Fail(err)
		return err
	}
	end, err := s.wal.LastIndex()
	if err != nil {
		s.opts.Fail(err)
		return err
	}
	if snap := s.installed.Load(); snap != nil && begin <= snap.Index && first <= begin && last >= end {
		return s.dropReplaced(*snap, begin, end)
	}
	if applied := s.opts.Applied(); last >= end && first <= applied {
		err := s.opts.Diverged(first, last, applied)
		s.opts.Fail(err)
		return err
	}
	return s.truncate(first, last, last >= end)
}

// truncate drops the oldest entries, or the newest ones. The cache and the tail forget them first:
// no reader gets an entry from memory that raft-wal has dropped.
func (s *Log) truncate(first, last uint64, newest bool) error {
	s.writes <- struct{}{}
	defer func() { <-s.writes }()
	if newest {
		if err := s.opts.Overrule(); err != nil {
			s.opts.Fail(err)
			return err
		}
	}
	s.cache.clear()
	if newest {
		s.tail.Store(nil)
	}
	if err := s.wal.DeleteRange(first, last); err != nil {
		err = fmt.Errorf("raft: drop log entries %d to %d: %w", first, last, err)
		s.opts.Fail(err)
		return err
	}
	return nil
}

// BeginAfter notes an installed snapshot: the log has yet to begin after it.
func (s *Log) BeginAfter(snapshot EntryID) { s.installed.Store(&snapshot) }

// dropReplaced drops the log that a snapshot has replaced. hashicorp/raft keeps the old last entry
// in memory; that is harmless if the entry lies before the snapshot. Otherwise the log either
// agrees with the snapshot and stays, with entries that this node has acknowledged; or it was
// overruled and is dropped, and the node must restart to learn that.
func (s *Log) dropReplaced(snap EntryID, first, last uint64) error {
	if last >= snap.Index {
		agrees, err := s.Holds(snap)
		if err != nil || agrees {
			return err
		}
	}
	if err := s.truncate(first, last, true); err != nil || last < snap.Index {
		return err
	}
	err := fmt.Errorf("%w: entries up to %d were dropped for the snapshot of entry %d; restart the node",
		ErrOverruled, last, snap.Index)
	s.opts.Fail(err)
	return err
}

// Drop drops entries before the node runs, without a check and without a call to Fail.
func (s *Log) Drop(first, last uint64) error {
	if err := s.opts.Overrule(); err != nil {
		return err
	}
	s.tail.Store(nil)
	return s.wal.DeleteRange(first, last)
}

// Written counts the bytes of entries found at open and stored since.
func (s *Log) Written() uint64 { return s.written.Load() }

// Holding returns how many entries of average size fit into a number of bytes.
func (s *Log) Holding(bytes uint64) uint64 {
	entries := s.fresh.entries.Load()
	return uint64(float64(bytes) / max(float64(s.fresh.bytes.Load()), 1) * float64(entries))
}

// Stalled returns the duration of the current write; 0 without one.
func (s *Log) Stalled() time.Duration {
	begun := s.writing.Load()
	if begun == 0 {
		return 0
	}
	return time.Since(s.opened) - time.Duration(begun)
}
