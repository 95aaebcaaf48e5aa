package list

import (
	"encoding/binary"
	"fmt"

	"runlog/projector/run"
)

// Tx is the transaction in which a change is folded. It copies keys and values.
type Tx interface {
	Get(key []byte) ([]byte, error) // nil: no row
	Set(key, value []byte)
	Delete(key []byte)
	SingleDelete(key []byte) // of a key that was set once since it was deleted last
}

// Folder writes the rows of changed runs. It reuses its memory and is for one goroutine.
type Folder struct{ row, place, key []byte }

// Fold writes the rows of a run after a change: the row of the list, and the rows of indexes that
// the change moves. If the change is unsure or the run is new, it writes the rows of all indexes.
//
// A row of a status is set once when the run takes the status, and is deleted when the run leaves
// it. So a single delete is enough: row and tombstone disappear when they meet in a flush. Plain
// tombstones would stay where a query looks for the newest runs of a status. If a row stayed by
// mistake, it would name a run whose row of the list has another status.
func (f *Folder) Fold(tx Tx, c *run.Change) error {
	t := traitsOf(c.Run, c.Now.Status)
	f.place = appendPlace(f.place[:0], c.Run.CreatedAt, c.Run.RunID)
	before := *t
	before.status = c.Before
	if c.Behind {
		var err error
		if before.status, err = f.stored(tx, t); err != nil {
			return err
		}
	}
	summary := run.SummaryOf(c.Now)
	f.row = appendListRow(f.row[:0], t, &summary)
	tx.Set(f.at(whole, t), f.row)
	all := c.Unsure || before.status == 0
	if all {
		f.key = append(append(f.key[:0], tableByID), c.Run.RunID...)
		f.row = binary.BigEndian.AppendUint64(f.row[:0], uint64(c.Run.CreatedAt))
		tx.Set(f.key, f.row)
	} else if before.status == t.status {
		return nil
	}
	for _, x := range indexes {
		moves := x.by&byStatus != 0
		if moves && before.status != 0 {
			if key := f.at(x, &before); c.Unsure {
				tx.Delete(key)
			} else {
				tx.SingleDelete(key)
			}
		}
		if moves || all {
			tx.Set(f.at(x, t), nil)
		}
	}
	return nil
}

// at returns the key of the run in an index, until the next call.
func (f *Folder) at(x index, t *traits) []byte {
	f.key = append(x.appendPrefix(f.key[:0], t), f.place...)
	return f.key
}

// stored returns the status that the run's row of the list has, 0 when there is no row.
func (f *Folder) stored(tx Tx, t *traits) (run.Status, error) {
	row, err := tx.Get(f.at(whole, t))
	if err != nil || row == nil {
		return 0, err
	}
	e, ok := parseListRow(row)
	if !ok {
		return 0, fmt.Errorf("%w: %x", ErrDamaged, f.key)
	}
	return e.status, nil
}
