package list

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"runlog/projector/run"
	"runlog/storage"
)

// FoldLabels writes the rows of a run's labels after a commit that may have changed them.
func (f *Folder) FoldLabels(tx Tx, c *storage.Commit) error {
	made := c.Position == c.Run.CreatedPosition
	if len(c.Records) > 0 && !made {
		return nil
	}
	var labels map[string]string
	if c.Metadata != nil {
		labels = c.Metadata.Labels
	}
	if made && len(labels) == 0 {
		return nil // Nearly every run: no row is read.
	}
	f.place = appendPlace(f.place[:0], c.Run.CreatedAt, c.Run.RunID)
	key := append([]byte{tableLabels}, f.place...)
	before, err := tx.Get(key)
	if err != nil {
		return err
	}
	f.row = f.row[:0]
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		f.row = appendSized(appendSized(f.row, name), labels[name])
	}
	if bytes.Equal(before, f.row) {
		return nil
	}
	old, ok := parseLabels(before)
	if !ok {
		return fmt.Errorf("%w: %x", ErrDamaged, key)
	}
	for _, l := range old {
		if value, has := labels[l.Key]; !has || value != l.Value {
			tx.Delete(f.atLabel(&l))
		}
	}
	for name, value := range labels {
		tx.Set(f.atLabel(&run.Label{Key: name, Value: value}), nil)
	}
	if len(f.row) == 0 {
		tx.Delete(key)
	} else {
		tx.Set(key, f.row)
	}
	return nil
}

// atLabel returns the key of the run in the index of labels, until the next call.
func (f *Folder) atLabel(l *run.Label) []byte {
	f.key = append(appendLabelPrefix(f.key[:0], l), f.place...)
	return f.key
}

func parseLabels(row []byte) (labels []run.Label, ok bool) {
	r := rowReader{b: row}
	for len(r.b) > 0 {
		labels = append(labels, run.Label{Key: string(r.sized()), Value: string(r.sized())})
	}
	return labels, !r.bad
}
