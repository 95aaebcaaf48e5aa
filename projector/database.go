package projector

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/run"
	"runlog/storage"
)

// errProjection marks a fault of the projection database, which can be rebuilt at any time.
var errProjection = errors.New("projector: projection database")

// databaseFormat changes with the tables below. A database of another format is replaced by an
// empty one. The tables of the projections have formats of their own.
const databaseFormat = 3

// The projection database (D9) has no write-ahead log. Some rounds write (see round.keep): the rows
// of the projections with their watermarks in one batch, then the snapshots that are due, and the
// position from which to fold on, in another. So the state after a crash is the state after some
// write, and the other projections may be newer than the position from which folding resumes.
//
//	h         head of the tail        databaseFormat:1 cluster:16 from:8 newest:8
//	w name    watermark               Format:1 position:8 Tables
//	s runId   snapshot                Snapshot.MarshalStored
//
// and the tables of the list and of other projections. Folding resumes behind from. No row is newer
// than newest. A projection whose watermark is newest has the rows of exactly that position: a
// round up to there writes none of them again, no round straddles it, and the next one begins
// there. So a run that is folded again never moves back to an earlier status, and a round that
// moves it knows its rows without a look at them. A projection with a lower watermark is behind.
const (
	tableHead     = 'h'
	tableMark     = 'w'
	tableSnapshot = 's'

	tailTables = string(tableHead) + string(tableMark)

	headRow  = 1 + 16 + 8 + 8
	markSize = 1 + 8 // of a watermark without its tables
)

// database is the projection database. Only the goroutine of run writes, and Open before it, and
// Close after it. Readers use db, sound and damaged alone, with the lock of Projector.disk.
type database struct {
	// Set when it is opened, and never again.

	db      *pebble.DB
	cluster storage.ClusterID
	// opened is the head as it was when the database was opened.
	// Invariant: a snapshot of then that is newer than opened.from has the status that the list has
	// at opened.newest.
	opened struct{ from, newest storage.Position }
	// sound ends when the database turns out to be damaged. Its cause is an errProjection. Readers
	// and Pebble end it too.
	sound context.Context
	spoil context.CancelCauseFunc

	// Used by run alone.

	// from is the position behind which folding would resume after a crash: everything up to it is
	// in the stored snapshots.
	from storage.Position
	// tx has the rows that wait for a write, unwritten the runs whose change the projections have
	// not seen. written is the position of the last write. Invariant: written ≤ Projector.position
	// between two rounds, and both are empty where the two are equal.
	tx        Tx
	unwritten unwritten
	written   storage.Position

	encoder  run.Encoder // scratch, as are row and buf
	row, buf []byte
}

// damaged notes a fault of the database, which is then replaced by an empty one.
func (d *database) damaged(err error) {
	if !errors.Is(err, errProjection) {
		err = fmt.Errorf("%w: %w", errProjection, err)
	}
	d.spoil(err)
}

func openDatabase(o *Options) (*database, error) {
	d, err := tryDatabase(o)
	if err == nil {
		return d, nil
	}
	// The log has everything (PRJ-13).
	o.Logger.Warn("cannot read projection database; rebuilding it from the log", "dir", o.Dir, "err", err)
	return remakeDatabase(o)
}

func remakeDatabase(o *Options) (*database, error) {
	if err := o.FS.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("%w: remove %s: %w", errProjection, o.Dir, err)
	}
	return tryDatabase(o)
}

func tryDatabase(o *Options) (*database, error) {
	d := &database{cluster: o.Cluster, unwritten: unwritten{changes: map[string]run.Change{}}}
	d.tx.d = d
	d.sound, d.spoil = context.WithCancelCause(context.Background())
	var err error
	opts := &pebble.Options{
		FS:                 storage.WithMarkers(o.FS),
		FormatMajorVersion: pebble.FormatValueSeparation,
		DisableWAL:         true,
		MemTableSize:       16 << 20,
		MaxOpenFiles:       o.OpenFiles,
		Logger:             pebbleLogger{log: o.Logger, fail: o.fatal},
		EventListener: &pebble.EventListener{
			BackgroundError: d.damaged,
			DataCorruption:  func(info pebble.DataCorruptionInfo) { d.damaged(info.Details) },
		},
	}
	// Snapshots are compressed already; compactions need not do it again and again.
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	d.db, err = pebble.Open(o.Dir, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: open %s: %w", errProjection, o.Dir, err)
	}
	if err := d.readHead(); err != nil {
		return nil, errors.Join(err, d.db.Close())
	}
	return d, nil
}

// close stores what is left, in pieces, and flushes. If the database is damaged, it does neither:
// Pebble would retry forever. If the write under way does not end either, close returns an error
// and leaves the database open. Otherwise it calls hide, behind which no reader may use it.
func (d *database) close(rest func() error, hide func()) error {
	stored := make(chan error, 1)
	go func() { stored <- rest() }()
	var err error
	select {
	case err = <-stored:
	case <-d.sound.Done():
		select {
		case err = <-stored:
		case <-time.After(retryAfter):
			return fmt.Errorf("%w: close: writes do not end: %w", errProjection, context.Cause(d.sound))
		}
	}
	if err == nil {
		err = d.flush()
	}
	hide()
	if err = errors.Join(err, d.db.Close()); err != nil {
		return fmt.Errorf("%w: close: %w", errProjection, err)
	}
	return nil
}

func (d *database) flush() error {
	flushed, err := d.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return nil
	case <-d.sound.Done():
		return context.Cause(d.sound)
	}
}

// readHead reads the head. A database without rows is new.
func (d *database) readHead() error {
	row, err := d.get([]byte{tableHead})
	switch {
	case err != nil:
		return err
	case row == nil:
		return d.wantEmpty()
	case len(row) != headRow || row[0] != databaseFormat:
		return fmt.Errorf("%w: of another format", errProjection)
	case storage.ClusterID(row[1:17]) != d.cluster:
		return fmt.Errorf("%w: of another cluster", errProjection)
	}
	d.opened.from = storage.Position(binary.BigEndian.Uint64(row[17:]))
	d.opened.newest = storage.Position(binary.BigEndian.Uint64(row[25:]))
	d.from = d.opened.from
	return nil
}

func (d *database) wantEmpty() error {
	it, err := d.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errProjection, err)
	}
	filled := it.First()
	if err := it.Close(); err != nil {
		return fmt.Errorf("%w: %w", errProjection, err)
	}
	if filled {
		return fmt.Errorf("%w: of another format", errProjection)
	}
	return nil
}

// get returns a copy of a row, nil when there is none.
func (d *database) get(key []byte) ([]byte, error) {
	row, closer, err := d.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	return bytes.Clone(row), closer.Close()
}

// has reports whether there is a row.
func (d *database) has(key []byte) (bool, error) { return hasRow(d.db, key) }

func hasRow(r pebble.Reader, key []byte) (bool, error) {
	_, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", errProjection, err)
	}
	return true, closer.Close()
}

// load returns the stored snapshot of a run and the length of its canonical form, nil when there is
// none.
func (d *database) load(runID string) (s *run.Snapshot, length int, err error) {
	row, err := d.get(snapshotKey(runID))
	if err != nil || row == nil {
		return nil, 0, err
	}
	if s, err = run.UnmarshalStored(row); err == nil {
		length, err = run.StoredLength(row)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: snapshot of run %q: %w", errProjection, runID, err)
	}
	return s, length, nil
}

// write is a batch on its way to the database. The first error stays.
type write struct {
	d     *database
	batch *pebble.Batch
	err   error
}

func (d *database) write() *write { return &write{d: d, batch: d.db.NewBatch()} }

func (w *write) set(key, value []byte) {
	if w.err == nil {
		w.err = w.batch.Set(key, value, nil)
	}
}

// clear deletes tables.
func (w *write) clear(tables string) {
	for i := range len(tables) {
		if w.err == nil {
			w.err = w.batch.DeleteRange([]byte{tables[i]}, []byte{tables[i] + 1}, nil)
		}
	}
}

// size of the batch, in bytes.
func (w *write) size() int { return w.batch.Len() }

// snapshot writes a run's snapshot and returns the length of its canonical form.
func (w *write) snapshot(e *cached) int {
	d := w.d
	d.row = d.encoder.Append(d.row[:0], e.snapshot)
	d.buf = append(append(d.buf[:0], tableSnapshot), e.runID...)
	w.set(d.buf, d.row)
	return d.encoder.Length()
}

// head writes the position behind which folding resumes, and the newest one of any row.
func (w *write) head(from, newest storage.Position) {
	d := w.d
	d.row = append(append(d.row[:0], databaseFormat), d.cluster[:]...)
	d.row = binary.BigEndian.AppendUint64(d.row, uint64(from))
	d.row = binary.BigEndian.AppendUint64(d.row, uint64(newest))
	w.set([]byte{tableHead}, d.row)
}

// mark writes the watermark of a projection.
func (w *write) mark(pr *projection, at storage.Position) {
	d := w.d
	d.buf = append(append(d.buf[:0], tableMark), pr.Name...)
	d.row = binary.BigEndian.AppendUint64(append(d.row[:0], pr.Format), uint64(at))
	d.row = append(d.row, pr.Tables...)
	w.set(d.buf, d.row)
}

// apply writes the batch and the rows of the transaction, all or none.
func (w *write) apply() error {
	if err := w.d.tx.err; err != nil {
		return err // a fault of a projection's code
	}
	if w.err == nil {
		w.err = w.d.tx.write(w.batch)
	}
	if w.err == nil && !w.batch.Empty() {
		w.err = w.d.db.Apply(w.batch, pebble.NoSync)
	}
	if w.err != nil {
		return fmt.Errorf("%w: %w", errProjection, w.err)
	}
	return nil
}

func (w *write) close() { _ = w.batch.Close() }

func snapshotKey(runID string) []byte { return append([]byte{tableSnapshot}, runID...) }

// pebbleLogger passes Pebble's log on. Fatalf panics: if it returned, Pebble would continue, on a
// goroutine of its own, as if nothing had happened, and the database could not be replaced.
type pebbleLogger struct {
	log  *slog.Logger
	fail func(error)
}

var _ pebble.Logger = pebbleLogger{}

func (l pebbleLogger) Infof(format string, args ...any) {}
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("projection database", "msg", fmt.Sprintf(format, args...))
}
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("projector: pebble: "+format, args...)
	l.fail(err)
	panic(err)
}
