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
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/s2"

	"runlog/storage"
)

// errProjection marks trouble with the projection database, which can be made anew at any time.
var errProjection = errors.New("projector: projection database")

// databaseFormat changes with the tables below, as StoredFormat does with the snapshots; a database
// of another format is made anew.
const databaseFormat = 2

// The projection database (D9). It has no write-ahead log. A round writes its rows of the list,
// then, in one batch, the snapshots that are due and the position up to which the database has
// everything. So what survives a crash is the state after some round, of which list and snapshots
// may be newer than the position says; folding goes on from there.
//
// The rows of the list carry a position of their own, and are in the database exactly as they were
// there: a round up to it writes none of them again, and the next one begins there. So a run that
// is folded again never moves back to a status that it had before, and a round that moves it knows
// which of its rows are there without having to look.
//
//	l place                             list of runs, newest first   listRow
//	T tenant place                      its indexes                  nothing
//	J tenant project place
//	E tenant project environment place
//	P plan place
//	S status:1 place
//	U tenant status:1 place
//	p                                   position of the list         position:8
//	s runId                             snapshot                     Snapshot.MarshalStored
//	w                                   watermark                    databaseFormat:1 StoredFormat:1 cluster:16 position:8
//
// A place is ^createdAt:8 runId; a text before it is followed by 00 01, and has 00 ff for a zero
// byte.
const (
	tableList           = 'l'
	tableByTenant       = 'T'
	tableByProject      = 'J'
	tableByEnvironment  = 'E'
	tableByPlan         = 'P'
	tableByStatus       = 'S'
	tableByTenantStatus = 'U'
	tableListed         = 'p'
	tableSnapshot       = 's'
	tableWatermark      = 'w'
)

const watermarkRow = 2 + 16 + 8

type database struct {
	db       *pebble.DB
	cluster  storage.ClusterID
	position storage.Position // up to which it had everything when it was opened
	// listed is up to where the list was when it was opened. Invariant: snapshots of then that are
	// newer say no other status, since the list is written first.
	listed storage.Position

	// What follows is for the one goroutine that writes.
	encoder         storedEncoder
	row, place, key []byte
	rows            rows // of the list, that wait for the end of a write

	// sound ends when the database turns out to be damaged. Its cause is an errProjection.
	sound context.Context
	spoil context.CancelCauseFunc
}

// damaged remembers trouble with the database, after which it is made anew.
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
	// Whatever is wrong with it, the log has everything (PRJ-13).
	o.Logger.Warn("projection database is made anew", "dir", o.Dir, "reason", err)
	return remakeDatabase(o)
}

func remakeDatabase(o *Options) (*database, error) {
	if err := o.FS.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("%w: remove %s: %w", errProjection, o.Dir, err)
	}
	return tryDatabase(o)
}

func tryDatabase(o *Options) (*database, error) {
	d := &database{cluster: o.Cluster}
	d.sound, d.spoil = context.WithCancelCause(context.Background())
	var err error
	opts := &pebble.Options{
		FS:                 o.FS,
		FormatMajorVersion: pebble.FormatValueSeparation,
		DisableWAL:         true,
		MemTableSize:       16 << 20,
		Logger:             pebbleLogger{log: o.Logger, fail: o.fatal},
		EventListener: &pebble.EventListener{
			BackgroundError: d.damaged,
			DataCorruption:  func(info pebble.DataCorruptionInfo) { d.damaged(info.Details) },
		},
	}
	// Snapshots come compressed, so that compactions need not do it over and over.
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	d.db, err = pebble.Open(o.Dir, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: open %s: %w", errProjection, o.Dir, err)
	}
	if err := d.readWatermark(); err != nil {
		return nil, errors.Join(err, d.db.Close())
	}
	return d, nil
}

// close stores what is left, in pieces, and flushes, unless the database is damaged: Pebble would
// try for ever. One that does not even take what is under way is left as it is.
func (d *database) close(rest func() error) error {
	stored := make(chan error, 1)
	go func() { stored <- rest() }()
	var err error
	select {
	case err = <-stored:
	case <-d.sound.Done():
		select {
		case err = <-stored:
		case <-time.After(retryAfter):
			return fmt.Errorf("%w: not closed, it takes nothing any more: %w", errProjection, context.Cause(d.sound))
		}
	}
	if err == nil {
		err = d.flush()
	}
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

func (d *database) readWatermark() error {
	row, err := d.get([]byte{tableListed})
	switch {
	case err != nil:
		return err
	case len(row) == 8:
		d.listed = storage.Position(binary.BigEndian.Uint64(row))
	case row != nil:
		return fmt.Errorf("%w: of another format", errProjection)
	}
	row, err = d.get([]byte{tableWatermark})
	switch {
	case err != nil || row == nil:
		return err
	case len(row) != watermarkRow || row[0] != databaseFormat || row[1] != StoredFormat:
		return fmt.Errorf("%w: of another format", errProjection)
	case storage.ClusterID(row[2:18]) != d.cluster:
		return fmt.Errorf("%w: of another cluster", errProjection)
	}
	d.position = storage.Position(binary.BigEndian.Uint64(row[18:]))
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

// load returns the stored snapshot of a run and the length of its canonical form, nil when there is
// none.
func (d *database) load(runID string) (s *Snapshot, length int, err error) {
	row, err := d.get(snapshotKey(runID))
	if err != nil || row == nil {
		return nil, 0, err
	}
	if s, err = UnmarshalStored(row); err == nil {
		length, err = s2.DecodedLen(row[storedHeader:])
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

// size of what was written, in bytes.
func (w *write) size() int { return w.batch.Len() }

// snapshot writes a run's snapshot and returns the length of its canonical form.
func (w *write) snapshot(e *cached) int {
	d := w.d
	d.row = d.encoder.append(d.row[:0], e.snapshot)
	d.key = append(append(d.key[:0], tableSnapshot), e.runID...)
	w.set(d.key, d.row)
	return len(d.encoder.canonical)
}

// position writes up to where the database has everything.
func (w *write) position(p storage.Position) {
	row := append([]byte{databaseFormat, StoredFormat}, w.d.cluster[:]...)
	w.set([]byte{tableWatermark}, binary.BigEndian.AppendUint64(row, uint64(p)))
}

// listed writes up to where the list is.
func (w *write) listed(p storage.Position) {
	w.set([]byte{tableListed}, binary.BigEndian.AppendUint64(nil, uint64(p)))
}

// apply writes all of it, or nothing.
func (w *write) apply() error {
	if w.err == nil {
		w.err = w.d.rows.write(w.batch)
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

// pebbleLogger hands Pebble's log on. Pebble goes on as if all were well when Fatalf returns, on a
// goroutine of its own, so it must not, and nobody could make the database anew.
type pebbleLogger struct {
	log  *slog.Logger
	fail func(error)
}

var (
	_ pebble.Logger = pebbleLogger{}
	_ vfs.FS        = vfs.Default
)

func (l pebbleLogger) Infof(format string, args ...any) {}
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("projection database", "msg", fmt.Sprintf(format, args...))
}
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("projector: pebble: "+format, args...)
	l.fail(err)
	panic(err)
}
