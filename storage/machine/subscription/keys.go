package subscription

import (
	"bytes"
	"encoding/binary"
	"fmt"
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

func number(dst []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(dst, n) }

func text(dst []byte, s string) []byte { return append(append(dst, s...), 0) }

func rowKey(n uint64) []byte { return number([]byte(rowTable), n) }

func nameKey(n Name) []byte { return text(text([]byte(nameTable), n.Tenant), n.ID) }

// namesOf is the begin of the keys of a tenant's names.
func namesOf(tenant string) []byte { return text([]byte(nameTable), tenant) }

func numbersKey() []byte { return []byte(countTable) }

func countKey(tenant string) []byte { return text([]byte(countTable), tenant) }

func owedKey(n uint64, runID string) []byte { return append(number([]byte(owedTable), n), runID...) }

// lettersOf is the begin of the keys of a subscription's dead letters, or of those that are
// redriven.
func lettersOf(n uint64, row byte) []byte { return append(number([]byte(letterTable), n), row) }

func letterKey(n uint64, row byte, p Place) []byte {
	return number(text(lettersOf(n, row), p.RunID), p.RunSeq)
}

// after is above every key that begins with a prefix. It does not end with 0xff: a prefix ends with
// a table's letter, a zero byte or the kind of a row.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	end[len(end)-1]++
	return end
}

// rowsOf is where the keys of a subscription begin and end in a table.
func rowsOf(table string, n uint64) (from, to []byte) {
	return number([]byte(table), n), number([]byte(table), n+1)
}

// parsePlace reads the key of a dead letter.
func parsePlace(key []byte) (p Place, err error) {
	rest := key[min(len(key), len(letterTable)+8+1):]
	if end := len(rest) - 9; end > 0 && bytes.IndexByte(rest, 0) == end {
		return Place{RunID: string(rest[:end]), RunSeq: binary.BigEndian.Uint64(rest[end+1:])}, nil
	}
	return p, fmt.Errorf("%w: key of a dead letter %q", errRow, key)
}

func parseNumber(row []byte) (uint64, error) {
	if len(row) != 8 {
		return 0, fmt.Errorf("%w: number of %d bytes", errRow, len(row))
	}
	return binary.BigEndian.Uint64(row), nil
}
