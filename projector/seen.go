package projector

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/seen"
	"runlog/storage"
)

// UnseenTypes returns those of some event types that no event up to a position has. If necessary it
// waits until the projection has that position, or until the context ends.
func (p *Projector) UnseenTypes(ctx context.Context, types []string, at storage.Position) ([]string, error) {
	return p.unseen(ctx, seen.TypeTable, types, at)
}

// UnseenTenants is UnseenTypes for tenants.
func (p *Projector) UnseenTenants(ctx context.Context, tenants []string, at storage.Position) ([]string, error) {
	return p.unseen(ctx, seen.TenantTable, tenants, at)
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
			found, err := hasRow(r, append([]byte{table}, value...))
			if err != nil {
				return err
			}
			if !found {
				unseen = append(unseen, value)
			}
		}
		return nil
	})
	return unseen, at, err
}
