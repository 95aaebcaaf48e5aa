package projector

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage"
)

// tableType has a row for each event type that the log has: the type, and no value.
const tableType byte = 'e'

// typesProjection is the event types that the log has ever had. Its rows are never deleted. A type
// takes less room here than its first event does in the log, so their number needs no bound.
func typesProjection() Projection {
	key := []byte{tableType}
	return Projection{Name: nameTypes, Format: 1, Tables: string(tableType),
		Fold: func(tx *Tx, c *storage.Commit) error {
			for i := range c.Records {
				key = append(key[:1], c.Records[i].Type...)
				if err := tx.Note(key); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// UnseenTypes returns those of some event types that no event up to a position has. If necessary it
// waits until the projection has that position, or until the context ends.
func (p *Projector) UnseenTypes(ctx context.Context, types []string, at storage.Position) ([]string, error) {
	unseen, read, err := p.readUnseen(types)
	if err != nil || len(unseen) == 0 || read >= at {
		return unseen, err
	}
	if err := p.Wait(ctx, nameTypes, at); err != nil {
		return nil, err
	}
	unseen, _, err = p.readUnseen(unseen)
	return unseen, err
}

func (p *Projector) readUnseen(types []string) (unseen []string, at storage.Position, err error) {
	at, err = p.Read(nameTypes, func(r pebble.Reader) error {
		for _, name := range types {
			seen, err := hasRow(r, append([]byte{tableType}, name...))
			if err != nil {
				return err
			}
			if !seen {
				unseen = append(unseen, name)
			}
		}
		return nil
	})
	return unseen, at, err
}
