package witness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"

	"runlog/audit/proof"
)

// ErrState means that the file of a witness's state cannot be read as one. A witness that
// began from scratch would sign a second history.
var ErrState = errors.New("witness: the state is damaged, or of another program")

const (
	stateTitle = "runlog witness state 1"
	// maxState bounds the file, in bytes.
	maxState = 64 << 20
)

// kept has the checkpoint of each log that was signed last, by origin.
type kept map[string]proof.KeptCheckpoint

type stateFile struct {
	Format string            `json:"format"`
	Logs   map[string]string `json:"logs"` // notes by origin
}

// readKept reads a state; it is empty if there is no file.
func readKept(path string) (kept, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return kept{}, nil
	}
	if err != nil {
		return nil, err
	}
	return parseKept(text)
}

func parseKept(text []byte) (kept, error) {
	var f stateFile
	if len(text) > maxState || json.Unmarshal(text, &f) != nil || f.Format != stateTitle {
		return nil, ErrState
	}
	k := kept{}
	for origin, note := range f.Logs {
		c, _, err := proof.PeekCheckpoint(note)
		if err != nil || c.Origin() != origin {
			return nil, fmt.Errorf("%w: the checkpoint of %q: %w", ErrState, origin, err)
		}
		k[origin] = proof.KeptCheckpoint{Checkpoint: *c, Note: note}
	}
	if again, err := k.text(); err != nil || !bytes.Equal(again, text) {
		return nil, ErrState
	}
	return k, nil
}

// text returns the file of a state.
func (k kept) text() ([]byte, error) {
	f := stateFile{stateTitle, map[string]string{}}
	for origin, c := range k {
		f.Logs[origin] = c.Note
	}
	text, err := json.Marshal(f)
	return append(text, '\n'), err
}

// with returns the state with another checkpoint of a log.
func (k kept) with(origin string, c proof.KeptCheckpoint) kept {
	next := maps.Clone(k)
	next[origin] = c
	return next
}
