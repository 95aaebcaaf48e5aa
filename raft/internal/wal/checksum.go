package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	hraft "github.com/hashicorp/raft"
)

// errDamaged is a log entry whose checksum does not match.
var errDamaged = errors.New("raft: damaged log entry")

// checksumSize is the size of a checksum: CRC32C over an entry's index, term and type (8, 8, 1, big
// endian), its nonces and its data. raft-wal checks only the last write of its tail. A flipped bit
// elsewhere could turn an entry into another one, or a command into a no-op (D3). The checksum lies
// behind the nonces in the entry's Extensions, because raft-wal v0.4.1 accepts no other codec. An
// entry of an earlier version has no nonces.
const checksumSize = 4

func checksum(l *hraft.Log, nonces []byte) uint32 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], l.Index)
	binary.BigEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, nonces)
	return crc32.Update(sum, castagnoli, l.Data)
}

// sealed returns copies of entries that carry their checksum: hashicorp/raft keeps the originals.
func sealed(logs []*hraft.Log) []*hraft.Log {
	rows := make([]hraft.Log, len(logs))
	out := make([]*hraft.Log, len(logs))
	for i, l := range logs {
		rows[i] = *l
		rows[i].Extensions = binary.BigEndian.AppendUint32(slices.Clip(l.Extensions), checksum(l, l.Extensions))
		out[i] = &rows[i]
	}
	return out
}

// unseal checks the entry that was read at index, and removes its checksum.
func unseal(l *hraft.Log, index uint64) error {
	at := len(l.Extensions) - checksumSize
	if l.Index != index || at != 0 && at != noncesSize ||
		binary.BigEndian.Uint32(l.Extensions[at:]) != checksum(l, l.Extensions[:at]) {
		return fmt.Errorf("%w: index %d", errDamaged, index)
	}
	l.Extensions = l.Extensions[:at:at]
	if at == 0 {
		l.Extensions = FormatNonces(0, 0) // StoreLogs of another node would draw one
	}
	return nil
}
