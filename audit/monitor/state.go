package monitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"runlog/audit/internal/durable"
	"runlog/audit/proof"
)

// ErrState means that the file of a monitor's state cannot be read as one.
var ErrState = errors.New("monitor: the state is damaged, or of another program")

const (
	stateTitle = "runlog monitor state 1"
	// maxState bounds the file: a checkpoint with many signatures, in JSON.
	maxState = 4 << 20
)

// State is what a monitor keeps between its runs.
type State struct {
	// Checkpoint is the last verified one, a note.
	Checkpoint string
	// Records that were verified in all.
	Records uint64
}

type stateFile struct {
	Format     string `json:"format"`
	Checkpoint string `json:"checkpoint"`
	Records    uint64 `json:"records"`
}

// ReadState reads a state; the zero value if there is no file. The error is ErrState, or that of
// the file system.
func ReadState(path string) (State, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	return parseState(text)
}

func parseState(text []byte) (State, error) {
	var f stateFile
	if len(text) > maxState || json.Unmarshal(text, &f) != nil || f.Format != stateTitle {
		return State{}, ErrState
	}
	s := State{f.Checkpoint, f.Records}
	if again, err := s.text(); err != nil || !bytes.Equal(again, text) {
		return State{}, ErrState
	}
	if _, _, err := proof.PeekCheckpoint(s.Checkpoint); err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrState, err)
	}
	return s, nil
}

func (s State) text() ([]byte, error) {
	text, err := json.Marshal(stateFile{stateTitle, s.Checkpoint, s.Records})
	return append(text, '\n'), err
}

// Write replaces a state. When it returns, the state survives a loss of power; until then the one
// before does.
func (s State) Write(path string) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	return durable.Write(path, text)
}
