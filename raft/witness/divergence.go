package witness

import (
	"encoding/json"
	"fmt"
)

const divergenceFile = "divergence"

// KeepIt is the remedy of a node that may be the only one with acknowledged events.
const KeepIt = "This data directory may be the only one with acknowledged events: keep it, and those of all other members. " +
	"Write them to a file with \"runlog cluster salvage --data-dir DIR -f FILE\" and append it with \"runlog append -f FILE\"; " +
	"then replace this node (docs/operations.md, Older copies)"

// Divergence is a leader's request to drop entries that this node has applied.
type Divergence struct {
	// First and Last entry to drop, and the last one that is applied.
	First, Last, Applied uint64
}

// Keep stores the divergence durably, for a salvage. One that is there already stays part of it:
// the node was started again, and knows less of where the histories parted.
func (d Divergence) Keep(files Files) error {
	if was, err := ReadDivergence(files); err == nil && was != nil {
		d.First, d.Last = min(d.First, was.First), max(d.Last, was.Last)
	}
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return files.Replace(divergenceFile, body)
}

// ReadDivergence returns what Keep stored; nil: nothing.
func ReadDivergence(files Files) (*Divergence, error) {
	body, err := files.Read(divergenceFile)
	if err != nil || body == nil {
		return nil, err
	}
	d := &Divergence{}
	if err := json.Unmarshal(body, d); err != nil {
		return nil, fmt.Errorf("raft: read %s: %w", divergenceFile, err)
	}
	return d, nil
}
