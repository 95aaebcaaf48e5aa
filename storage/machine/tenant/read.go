package tenant

import (
	"cmp"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Read returns the limits of a tenant as they were set, and the default of the cluster. Limits that
// were not set are 0.
func Read(s *storage.Store, tenant string) (own, standard *Limits, err error) {
	own, err = storage.ReadTables(s, Kind, func(r table.Reader) (own *Limits, err error) {
		if own, err = read(r, tenant); err == nil {
			standard, err = read(r, Default)
		}
		return own, err
	})
	return own, standard, err
}

func read(r table.Reader, tenant string) (*Limits, error) {
	m, err := table.Get[recordv1.TenantLimits](r, limitKey(tenant))
	if err != nil || m == nil {
		return &Limits{Tenant: tenant}, err
	}
	return decode(m), nil
}

// Effective returns what limits a tenant: its own limits, and the default where it has none.
func Effective(own, standard *Limits) Amounts {
	return Amounts{
		EventsPerSecond: cmp.Or(own.EventsPerSecond, standard.EventsPerSecond),
		BytesPerSecond:  cmp.Or(own.BytesPerSecond, standard.BytesPerSecond),
		Streams:         cmp.Or(own.Streams, standard.Streams),
		StoredBytes:     cmp.Or(own.StoredBytes, standard.StoredBytes),
		RunningRuns:     cmp.Or(own.RunningRuns, standard.RunningRuns),
		SelfAttestation: cmp.Or(own.SelfAttestation, standard.SelfAttestation, SelfAttestationForbidden),
	}
}
