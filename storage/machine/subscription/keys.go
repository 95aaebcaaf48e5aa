package subscription

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"runlog/storage/table"
)

const (
	rowTable    = "S"
	nameTable   = "U"
	owedTable   = "V"
	letterTable = "W"
	countTable  = "X"
)

// What a row of a dead letter is.
const (
	letterRow   = 0
	redrivenRow = 1
)

func rowKey(n uint64) table.Key { return table.In(rowTable).Number(n) }

// namesOf is the begin of the keys of a tenant's names.
func namesOf(tenant string) table.Key { return table.In(nameTable).Text(tenant) }

func nameKey(n Name) table.Key { return namesOf(n.Tenant).Text(n.ID) }

func numbersKey() []byte { return []byte(countTable) }

func countKey(tenant string) table.Key { return table.In(countTable).Text(tenant) }

// rowsOf is the begin of the keys of a subscription in a table.
func rowsOf(prefix string, n uint64) table.Key { return table.In(prefix).Number(n) }

func owedKey(n uint64, runID string) table.Key { return append(rowsOf(owedTable, n), runID...) }

// lettersOf is the begin of the keys of a subscription's dead letters, or of those that are
// redriven.
func lettersOf(n uint64, row byte) table.Key { return append(rowsOf(letterTable, n), row) }

func letterKey(n uint64, row byte, p Place) table.Key {
	return lettersOf(n, row).Text(p.RunID).Number(p.RunSeq)
}

// parsePlace reads the key of a dead letter.
func parsePlace(key []byte) (p Place, err error) {
	rest := key[min(len(key), len(letterTable)+8+1):]
	if end := len(rest) - 9; end > 0 && bytes.IndexByte(rest, 0) == end {
		return Place{RunID: string(rest[:end]), RunSeq: binary.BigEndian.Uint64(rest[end+1:])}, nil
	}
	return p, fmt.Errorf("%w: key of a dead letter %q", table.ErrRow, key)
}
