package wal

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft-wal/types"

	"runlog/storage"
)

// logMeta is raft-wal's MetaStore: the list of segments, in the small file "meta" in the same
// directory, as raft-wal's own JSON. raft-wal's default, bbolt, maps an operating system file into
// memory, so a test file system cannot replace it. It also panics over an empty file.
type logMeta struct {
	disk vfs.FS
	dir  string
}

var _ types.MetaStore = (*logMeta)(nil)

// metaFile has not raft-wal's suffix, which it would take for a segment.
const metaFile = "meta"

// Load returns the committed state; zero without one.
func (m *logMeta) Load(string) (state types.PersistentState, err error) {
	path := m.disk.PathJoin(m.dir, metaFile)
	body, err := ReadSummed(m.disk, path)
	if err == nil && body != nil {
		if err = json.Unmarshal(body, &state); err != nil {
			err = storage.Damage(fmt.Errorf("%s is damaged: %w", path, err))
		}
	}
	if err != nil {
		return types.PersistentState{}, fmt.Errorf("raft: read log metadata: %w", err)
	}
	return state, nil
}

// CommitState replaces the file. raft-wal calls it from one goroutine at a time.
func (m *logMeta) CommitState(state types.PersistentState) error {
	body, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("raft: write log metadata: %w", err)
	}
	if err := ReplaceSummed(m.disk, m.dir, metaFile, body); err != nil {
		return fmt.Errorf("raft: write log metadata: %w", err)
	}
	return nil
}

var errNoStable = errors.New("raft: term and vote are not stored in the log")

// GetStable is never called: term and vote have a store of their own.
func (*logMeta) GetStable([]byte) ([]byte, error) { return nil, errNoStable }

// SetStable is never called, see GetStable.
func (*logMeta) SetStable(_, _ []byte) error { return errNoStable }

// Close does nothing.
func (*logMeta) Close() error { return nil }
