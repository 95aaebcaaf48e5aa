package read

import (
	"errors"
	"fmt"

	"runlog/proto/contract"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// Caused returns the event of a type that a cause was first stored with (IDM-10); nil: there is
// none. The type must be one that recurs. It reads three rows and the event, however long the run
// is.
func (v *View) Caused(eventType, cause string) (_ *record.Record, err error) {
	rows := record.Rows{Reader: v.snap}
	defer func() { err = errors.Join(err, rows.Close()) }()
	hash := record.HashCause(cause)
	row, err := rows.Find(append(keys.AppendAttempt(nil, v.ref, byte(contract.TypeCode(eventType))), hash[:]...))
	if err != nil {
		return nil, err
	}
	stored, err := record.ParseAttempted(row)
	if err != nil || stored.Attempt == 0 {
		return nil, err
	}
	receipt, ok, err := rows.Receipt(v.ref, &stored.Key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: run %q has a cause without a receipt", record.ErrRow, v.Run.RunID)
	}
	for r, err := range v.Events(receipt.RunSeq - 1) {
		return r, err
	}
	return nil, fmt.Errorf("%w: run %q has no event with runSeq %d", record.ErrRow, v.Run.RunID, receipt.RunSeq)
}
