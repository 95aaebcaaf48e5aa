package read

import (
	"errors"

	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// FindFirst returns a run and its event with runSeq 1 as of one moment, or *RunNotFoundError. The
// event is nil if the run has none. It is of record.Facts. For a run that exists, it costs less
// than a View.
func FindFirst(acquire Acquire, runID string) (_ *Run, _ *record.Record, err error) {
	db, release, err := acquire()
	if err != nil {
		return nil, nil, err
	}
	defer release()
	rows := record.Rows{Reader: db, Known: true}
	defer func() { err = errors.Join(err, rows.Close()) }()
	ref, found, err := rows.Ref(runID)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, &RunNotFoundError{RunID: runID}
	}
	run, id, err := runAt(&rows, ref)
	if err != nil {
		return nil, nil, err
	}
	// An event with runSeq 1 is the first of its block.
	row, err := rows.Find(keys.AppendPlace(nil, ref, 1))
	if err != nil || row == nil {
		return run, nil, err
	}
	p, err := record.ParsePlace(row)
	if err != nil {
		return nil, nil, err
	}
	if row, err = rows.Find(keys.AppendChunk(nil, uint64(p.Position), p.Chunk)); err != nil {
		return nil, nil, err
	}
	var blocks blockFinder
	if err := blocks.parse(row, p); err != nil {
		return nil, nil, err
	}
	b, err := blocks.block(p)
	if err != nil {
		return nil, nil, err
	}
	records, err := b.Records(id, p.Position, blocks.stamp, record.Facts)
	if err != nil {
		return nil, nil, err
	}
	return run, &records[0], nil
}
