// Package seen folds the log into the event types and the tenants that its events have ever had.
package seen

import "runlog/storage"

// Format changes with the tables and with their meaning.
const Format = 1

// The tables have a row for each value, without content: the table and the value. Rows are never
// deleted. A value takes less room here than its first event does in the log, so their number needs
// no bound.
const (
	TypeTable   byte = 'e' // event types
	TenantTable byte = 'o' // tenants

	Tables = string(TypeTable) + string(TenantTable)
)

// Tx is the transaction in which a commit is folded.
type Tx interface {
	Note(key []byte) error // writes a row without a value, unless it is there
}

// Folder writes the rows of commits. It is for one goroutine.
type Folder struct {
	// The rows noted last with tx are not noted again: most events have the same.
	tx                Tx
	eventType, tenant []byte
}

// Fold writes the rows of a commit.
func (f *Folder) Fold(tx Tx, c *storage.Commit) error {
	if f.tx != tx {
		f.tx, f.eventType, f.tenant = tx, nil, nil
	}
	for i := range c.Records {
		if err := f.note(TypeTable, &f.eventType, c.Records[i].Type); err != nil {
			return err
		}
	}
	if len(c.Records) == 0 {
		return nil
	}
	return f.note(TenantTable, &f.tenant, c.Run.Scope.TenantID)
}

func (f *Folder) note(table byte, last *[]byte, value string) error {
	if len(*last) > 0 && string((*last)[1:]) == value {
		return nil
	}
	*last = append(append((*last)[:0], table), value...)
	return f.tx.Note(*last)
}
