package tree

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/storage"
)

// Name of the projection.
const Name = "tree"

// Format changes with the tables and with their meaning.
const Format = 1

// The first bytes of the keys.
const (
	edgeTable   byte = 'g'
	tileTable   byte = 't'
	sampleTable byte = 'i'

	Tables = string(edgeTable) + string(tileTable) + string(sampleTable)
)

const (
	// Height is that of a tile, in levels of the tree.
	Height = 8
	// Width is the number of hashes in a full tile.
	Width = 1 << Height

	tileSize = Width * tlog.HashSize
	// levels is the most levels of tiles that a tree can have.
	levels = 64 / Height
)

// ErrDamaged means that a row of the tree cannot be read, or is missing. The remedy is to rebuild
// the projection.
var ErrDamaged = errors.New("tree: damaged row")

// state is the row g.
type state struct {
	size uint64 // number of leaves
	// position is that of the last leaf; offset is how many leaves the position has so far.
	position storage.Position
	offset   uint32
	sample   uint64 // the leaf of the last row of i
}

const stateSize = 8 + 8 + 4 + 8

func (s *state) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, s.size)
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.position))
	dst = binary.BigEndian.AppendUint32(dst, s.offset)
	return binary.BigEndian.AppendUint64(dst, s.sample)
}

// parseState reads the row g; nil: nothing is folded yet.
func parseState(row []byte) (s state, err error) {
	if row == nil {
		return s, nil
	}
	if len(row) != stateSize {
		return s, fmt.Errorf("%w: the size of the tree has %d bytes, not %d", ErrDamaged, len(row), stateSize)
	}
	s = state{
		size:     binary.BigEndian.Uint64(row),
		position: storage.Position(binary.BigEndian.Uint64(row[8:])),
		offset:   binary.BigEndian.Uint32(row[16:]),
		sample:   binary.BigEndian.Uint64(row[20:]),
	}
	if s.size == 0 || s.size >= 1<<60 || uint64(s.offset) > s.size || s.offset == 0 || s.sample >= s.size {
		return state{}, fmt.Errorf("%w: a tree of %d leaves, %d of them of the last position", ErrDamaged, s.size, s.offset)
	}
	return s, nil
}

// hashes returns how many hashes a level of tiles has.
func (s *state) hashes(level int) uint64 { return s.size >> (Height * level) }

func edgeKey(dst []byte, level int) []byte { return append(dst, edgeTable, byte(level)) }

func tileKey(dst []byte, level int, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, tileTable, byte(level)), n)
}

func sampleKey(dst []byte, position storage.Position) []byte {
	return binary.BigEndian.AppendUint64(append(dst, sampleTable), uint64(position))
}

// parseEdge reads the edge of a level: the number of its tile, and the hashes.
func parseEdge(row []byte, level int) (n uint64, hashes []byte, err error) {
	if len(row) < 8 || (len(row)-8)%tlog.HashSize != 0 || len(row)-8 >= tileSize {
		return 0, nil, fmt.Errorf("%w: the edge of level %d has %d bytes", ErrDamaged, level, len(row))
	}
	return binary.BigEndian.Uint64(row), row[8:], nil
}

// parseSample reads a row of i.
func parseSample(key, value []byte) (position storage.Position, index uint64, err error) {
	if len(key) != 9 || len(value) != 8 {
		return 0, 0, fmt.Errorf("%w: a sampled position of %d and %d bytes", ErrDamaged, len(key), len(value))
	}
	return storage.Position(binary.BigEndian.Uint64(key[1:])), binary.BigEndian.Uint64(value), nil
}
