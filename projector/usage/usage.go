// Package usage folds the log into what each tenant has stored (SEC-6).
//
//	u tenant    bytes that its events count    8, big-endian
package usage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/proto/contract"
	"runlog/storage"
)

// Name of the projection.
const Name = "usage"

// Format changes with the tables and with their meaning.
const Format = 1

const bytesTable byte = 'u'

// Tables are the first bytes of the keys.
const Tables = string(bytesTable)

// EventBytes is what an event counts in addition to its payload and extensions.
const EventBytes = 512

// maxTotals bounds the tenants whose totals a folder remembers.
const maxTotals = 10_000

// Tx is the transaction in which a commit is folded.
type Tx interface {
	Get(key []byte) ([]byte, error) // nil: no row
	Set(key, value []byte)
}

// Bytes returns what an event counts, in bytes.
func Bytes(e *contract.Event) int64 {
	return int64(EventBytes + len(e.Payload) + len(e.Extensions))
}

// Folder writes the rows of commits. It is for one goroutine.
type Folder struct {
	// totals has the rows as tx leaves them: to read them again would cost more than to write them.
	tx         Tx
	totals     map[string]uint64
	key, value []byte
}

// Fold adds the events of a commit to those of their tenant.
func (f *Folder) Fold(tx Tx, c *storage.Commit) error {
	if len(c.Records) == 0 {
		return nil
	}
	if f.tx != tx || len(f.totals) >= maxTotals {
		f.tx, f.totals = tx, map[string]uint64{}
	}
	name := c.Run.Scope.TenantID
	f.key = append(append(f.key[:0], bytesTable), name...)
	total, known := f.totals[name]
	if !known {
		row, err := tx.Get(f.key)
		if err != nil {
			return err
		}
		if total, err = parse(row); err != nil {
			return err
		}
	}
	for i := range c.Records {
		total += uint64(Bytes(&c.Records[i].Event))
	}
	f.totals[name] = total
	f.value = binary.BigEndian.AppendUint64(f.value[:0], total)
	tx.Set(f.key, f.value)
	return nil
}

// Stored returns what the events of a tenant count, in bytes.
func Stored(r pebble.Reader, tenant string) (uint64, error) {
	row, closer, err := r.Get(append([]byte{bytesTable}, tenant...))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	total, err := parse(row)
	return total, errors.Join(err, closer.Close())
}

// parse reads a row; nil: there is none yet.
func parse(row []byte) (uint64, error) {
	switch len(row) {
	case 0:
		return 0, nil
	case 8:
		return binary.BigEndian.Uint64(row), nil
	default:
		return 0, fmt.Errorf("usage: a row of %d bytes, not 8", len(row))
	}
}
