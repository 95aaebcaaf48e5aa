package projector

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage"
)

// The tables of the values that events of the log have: a row for each value, without content.
const (
	tableType   byte = 'e' // event types
	tableTenant byte = 'o' // tenants
)

// seenProjection is the event types and the tenants that events of the log have ever had. Its rows
// are never deleted. A value takes less room here than its first event does in the log, so their
// number needs no bound.
func seenProjection() Projection {
	eventType, tenant := []byte{tableType}, []byte{tableTenant}
	return Projection{Name: nameSeen, Format: 1, Tables: string(tableType) + string(tableTenant),
		Fold: func(tx *Tx, c *storage.Commit) error {
			for i := range c.Records {
				eventType = append(eventType[:1], c.Records[i].Type...)
				if err := tx.Note(eventType); err != nil {
					return err
				}
			}
			if len(c.Records) == 0 {
				return nil
			}
			tenant = append(tenant[:1], c.Run.Scope.TenantID...)
			return tx.Note(tenant)
		},
	}
}

// UnseenTypes returns those of some event types that no event up to a position has. If necessary it
// waits until the projection has that position, or until the context ends.
func (p *Projector) UnseenTypes(ctx context.Context, types []string, at storage.Position) ([]string, error) {
	return p.unseen(ctx, tableType, types, at)
}

// UnseenTenants is UnseenTypes for tenants.
func (p *Projector) UnseenTenants(ctx context.Context, tenants []string, at storage.Position) ([]string, error) {
	return p.unseen(ctx, tableTenant, tenants, at)
}

func (p *Projector) unseen(ctx context.Context, table byte, values []string, at storage.Position) ([]string, error) {
	unseen, read, err := p.readUnseen(table, values)
	if err != nil || len(unseen) == 0 || read >= at {
		return unseen, err
	}
	if err := p.Wait(ctx, nameSeen, at); err != nil {
		return nil, err
	}
	unseen, _, err = p.readUnseen(table, unseen)
	return unseen, err
}

func (p *Projector) readUnseen(table byte, values []string) (unseen []string, at storage.Position, err error) {
	at, err = p.Read(nameSeen, func(r pebble.Reader) error {
		for _, value := range values {
			seen, err := hasRow(r, append([]byte{table}, value...))
			if err != nil {
				return err
			}
			if !seen {
				unseen = append(unseen, value)
			}
		}
		return nil
	})
	return unseen, at, err
}
