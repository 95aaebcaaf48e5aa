package server

import (
	"github.com/cockroachdb/pebble/v2"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/projector/usage"
)

// tenantUsage is limits.Usage, out of the projections of this node.
type tenantUsage struct{ *projector.Projector }

// StoredBytes implements limits.Usage.
func (u tenantUsage) StoredBytes(tenant string) (n uint64, err error) {
	_, err = u.Read(usage.Name, func(r pebble.Reader) error {
		n, err = usage.Stored(r, tenant)
		return err
	})
	return n, err
}

// OpenRuns implements limits.Usage.
func (u tenantUsage) OpenRuns(tenant string, limit int) (int, error) {
	n, _, _, err := u.Count(run.Filter{TenantID: tenant, Statuses: run.NotOver}, limit)
	return n, err
}
