package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/prometheus/client_golang/prometheus"
)

// Options of a log. All are required.
type Options struct {
	FS vfs.FS
	// Dir holds the segments and their metadata only. It exists.
	Dir string
	// Committed is the commit mark: Open refuses to repair a log that ends before it.
	Committed uint64
	// SegmentBytes is the size of a segment.
	SegmentBytes int
	// CacheBytes bounds the entries that are kept in memory.
	CacheBytes int
	// Applied returns an index up to which all entries are committed: the store has applied them,
	// or had before it was killed.
	Applied func() uint64
	// Overrule is called before the newest entries are dropped, because another leader overrules
	// them. If it fails, they stay.
	Overrule func() error
	// Diverged is called when entries are to be dropped that were applied. It returns the error
	// with which the log stops the node.
	Diverged func(first, last, applied uint64) error
	// Conflict is called when an entry is to be stored whose leader has another entry before it. It
	// returns the error with which the log stops the node.
	Conflict func(own EntryID) error
	// Fail is called with the reason when the log cannot be trusted any more. It may be called more
	// than once.
	Fail func(error)
	// WriteSeconds and WriteBytes measure writes.
	WriteSeconds prometheus.Observer
	WriteBytes   prometheus.Counter
	Logger       *slog.Logger
	// Library is raft-wal's logger.
	Library hclog.Logger
}

// Open opens the log in a directory. It first repairs what a crash has left at its end.
func Open(opts Options) (*Log, error) {
	if err := repairTail(walFiles{opts.FS}, opts.Dir, opts.Committed, opts.Applied()); err != nil {
		return nil, err
	}
	files, err := openSegmentFiles(opts.FS, opts.Dir, int64(opts.SegmentBytes), opts.Logger)
	if err != nil {
		return nil, err
	}
	w, err := raftwal.Open(opts.Dir, raftwal.WithSegmentSize(opts.SegmentBytes), raftwal.WithLogger(opts.Library),
		raftwal.WithSegmentFiler(segment.NewFiler(opts.Dir, files)),
		raftwal.WithMetaStore(&logMeta{disk: opts.FS, dir: opts.Dir}))
	if err != nil {
		files.close()
		return nil, damaged(fmt.Errorf("raft: a file of the log in %s is missing or damaged: %w", opts.Dir, err))
	}
	l := &Log{
		opts: opts, wal: w, files: files, opened: time.Now(),
		writes: make(chan struct{}, 1), cache: entryCache{limit: opts.CacheBytes},
	}
	if err := errors.Join(l.countBytes(), l.readTail()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// readTail reads the identity of the newest entry. Damage is reported when Raft reads the entry.
func (s *Log) readTail() error {
	last, err := s.wal.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	var l hraft.Log
	if err := s.read(last, &l); err == nil && unseal(&l, last) == nil {
		tail := IDOf(&l)
		s.tail.Store(&tail)
	}
	return nil
}

// countBytes starts the count with the size of the existing log, so that a node with short lives
// truncates too.
func (s *Log) countBytes() error {
	names, err := s.files.segments(s.opts.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if info, err := s.opts.FS.Stat(s.opts.FS.PathJoin(s.opts.Dir, name)); err == nil {
			s.written.Add(uint64(info.Size()))
		}
	}
	return nil
}

// Close closes the files. No other method may be called then.
func (s *Log) Close() error {
	err := s.wal.Close()
	s.files.close()
	return err
}
