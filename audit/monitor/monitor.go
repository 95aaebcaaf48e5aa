package monitor

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
)

// Source answers for a cluster, truthfully or not.
type Source interface {
	// Newest returns the newest signed checkpoint, a note; empty: there is none yet.
	Newest(ctx context.Context) (string, error)
	// Keys returns the public keys with which the cluster has signed, oldest first.
	Keys(ctx context.Context) ([]proof.Key, error)
	// Consistency returns the hashes that prove that a tree of later records continues one of
	// earlier.
	Consistency(ctx context.Context, earlier, later uint64) ([]tlog.Hash, error)
	// Events yields the messages of an export of the events that were stamped after a time and up
	// to another, in nanoseconds since 1970, with proofs in a tree of so many records.
	Events(ctx context.Context, after, upTo int64, treeSize uint64) iter.Seq2[*runlogv1.ExportEventsResponse, error]
}

// Options configure a Monitor.
type Options struct {
	Source Source
	// Keys are the public keys that the caller trusts, in their text form: of the cluster, and of
	// those whose backups it continues.
	Keys []string
	// Whole: the source shows the records of all tenants, so that none may be left out.
	Whole bool
	// Kept is the checkpoint up to which the log was verified before, a note; empty: the monitor
	// begins with the first record.
	Kept string
}

// Monitor follows a log. It is for one goroutine.
type Monitor struct {
	opts Options
	kept *proof.KeptCheckpoint // nil: nothing is verified yet
	// links has the chain digests of the runs that were read last.
	links *links
}

// New returns a monitor. The error is one of proof.OpenCheckpoint, for Kept.
func New(opts Options) (*Monitor, error) {
	m := &Monitor{opts: opts, links: newLinks()}
	if opts.Kept == "" {
		return m, nil
	}
	c, _, err := proof.PeekCheckpoint(opts.Kept)
	if err != nil {
		return nil, err
	}
	// It was verified when it was kept; its key may be older than the trusted ones.
	m.kept = &proof.KeptCheckpoint{Checkpoint: *c, Note: opts.Kept}
	return m, nil
}

// Contradiction means that a newer checkpoint is not shown to continue the last verified one, which
// proof.ErrContradiction explains.
type Contradiction struct {
	// Earlier and Later are the signed notes.
	Earlier, Later string
	Err            error
}

func (c *Contradiction) Error() string { return c.Err.Error() }
func (c *Contradiction) Unwrap() error { return c.Err }

// ErrRecords means that the records that a source shows are not those of the tree of its signed
// checkpoint.
var ErrRecords = errors.New("monitor: the records are not those that the cluster has signed")

// Round is what a round has verified.
type Round struct {
	// Checkpoint is the newest one, and Key signed it.
	Checkpoint proof.KeptCheckpoint
	// Before is the one that it continues; nil: there was none.
	Before *proof.KeptCheckpoint
	// Records were read and are in its tree. Linked is how many of them follow a record that the
	// monitor has read, or begin their run.
	Records, Linked uint64
}

// NewOrigin reports whether the log has another name than before: the cluster was recovered, or
// continues from a backup.
func (r *Round) NewOrigin() bool {
	return r.Before != nil && r.Before.Origin() != r.Checkpoint.Origin()
}

// Next verifies the newest checkpoint and the records since the last one. It returns nil if the
// cluster has no newer one. Errors: *Contradiction, ErrRecords, those of proof.Trusted and
// proof.OpenCheckpoint, and those of the source. After an error nothing counts as verified.
func (m *Monitor) Next(ctx context.Context) (*Round, error) {
	note, err := m.opts.Source.Newest(ctx)
	if err != nil || note == "" {
		return nil, err
	}
	newest, err := m.open(ctx, note)
	if err != nil {
		return nil, err
	}
	if m.kept != nil && m.kept.Checkpoint == newest.Checkpoint {
		return nil, nil
	}
	if err := m.continues(ctx, newest); err != nil {
		return nil, err
	}
	round := &Round{Checkpoint: *newest, Before: m.kept}
	if err := m.records(ctx, round); err != nil {
		return nil, err
	}
	m.kept = newest
	return round, nil
}

// open verifies the signature of a checkpoint.
func (m *Monitor) open(ctx context.Context, note string) (*proof.KeptCheckpoint, error) {
	keys, err := m.opts.Source.Keys(ctx)
	if err != nil {
		return nil, err
	}
	lineage, err := proof.CheckpointLineage(note, keys)
	if err != nil {
		return nil, err
	}
	trusted, err := proof.Trusted(lineage, m.opts.Keys...)
	if err != nil {
		return nil, err
	}
	kept, err := proof.OpenKept(note, trusted...)
	return &kept, err
}

// continues verifies that a checkpoint continues the last one.
func (m *Monitor) continues(ctx context.Context, newest *proof.KeptCheckpoint) error {
	if m.kept == nil {
		return nil
	}
	var hashes []tlog.Hash
	if m.kept.Size <= newest.Size {
		var err error
		if hashes, err = m.opts.Source.Consistency(ctx, m.kept.Size, newest.Size); err != nil {
			return err
		}
	}
	if err := proof.CheckConsistency(&m.kept.Checkpoint, &newest.Checkpoint, hashes); err != nil {
		return &Contradiction{Earlier: m.kept.Note, Later: newest.Note, Err: err}
	}
	return nil
}

// records verifies the records between two checkpoints.
func (m *Monitor) records(ctx context.Context, round *Round) error {
	to := &round.Checkpoint
	check := checker{tree: &to.Checkpoint, whole: m.opts.Whole, links: m.links, last: -1}
	after := int64(-1)
	if round.Before != nil {
		after, check.last = round.Before.CompleteThrough, int64(round.Before.Size)-1
	}
	first := check.last
	if int64(to.Size)-1 > first {
		for resp, err := range m.opts.Source.Events(ctx, after, to.CompleteThrough, to.Size) {
			if err == nil {
				err = check.message(resp)
			}
			if err != nil {
				m.links.clear() // Some are of records that are not verified.
				return err
			}
		}
	}
	if m.opts.Whole && check.last != int64(to.Size)-1 {
		m.links.clear()
		return fmt.Errorf("%w: the checkpoint of %s has %d records, and only the first %d were shown", ErrRecords,
			proof.FormatTime(to.CompleteThrough), to.Size, check.last+1)
	}
	round.Records, round.Linked = check.records, check.linked
	return nil
}

// Kept returns the last verified checkpoint; nil: none was.
func (m *Monitor) Kept() *proof.KeptCheckpoint { return m.kept }

// Fault reports whether an error says something about the log, and not only that it could not be
// read.
func Fault(err error) bool {
	return errors.Is(err, proof.ErrContradiction) || errors.Is(err, ErrRecords) || errors.Is(err, proof.ErrSignature)
}
