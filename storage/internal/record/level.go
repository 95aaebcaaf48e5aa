package record

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/keys"
)

// The feature level is a row of the core (docs/formats.md): level:4 position:8.
const levelRow = 12

// CoreLevel is the feature level of the core's operations, and of a store whose level was never
// raised.
const CoreLevel = 1

// BuildTooOldError says that the build does not support the feature level of a store. The node must
// stop.
type BuildTooOldError struct {
	Level    uint32 // of the store
	Supports uint32 // the highest of the build
}

func (e *BuildTooOldError) Error() string {
	return fmt.Sprintf("storage: the store is at feature level %d, this build supports levels up to %d: upgrade this node's binary to the build of the other members",
		e.Level, e.Supports)
}

// LevelRow encodes a feature level and the position of the proposal that raised it.
func LevelRow(level uint32, position Position) []byte {
	row := binary.BigEndian.AppendUint32(make([]byte, 0, levelRow), level)
	return binary.BigEndian.AppendUint64(row, uint64(position))
}

// ReadLevel reads the feature level, and refuses one that the build does not support.
func ReadLevel(r pebble.Reader, supports uint32) (uint32, error) {
	row, err := GetRow(r, keys.Level)
	if err != nil {
		return 0, err
	}
	if row == nil {
		return CoreLevel, nil
	}
	if len(row) != levelRow {
		return 0, fmt.Errorf("%w: feature level of %d bytes", ErrRow, len(row))
	}
	level := binary.BigEndian.Uint32(row)
	if level > supports {
		return 0, &BuildTooOldError{Level: level, Supports: supports}
	}
	return level, nil
}
