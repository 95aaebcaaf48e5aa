package tenant

import (
	"cmp"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// Read returns the limits of a tenant as they were set, and the default of the cluster. Limits that
// were not set are 0.
func Read(s *storage.Store, tenant string) (own, standard *Limits, err error) {
	v, err := s.Tables(Kind)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if own, err = read(v, tenant); err != nil {
		return nil, nil, err
	}
	standard, err = read(v, Default)
	return own, standard, err
}

func read(r storage.TableReader, tenant string) (*Limits, error) {
	row, err := r.Get(limitKey(tenant))
	if err != nil || row == nil {
		return &Limits{Tenant: tenant}, err
	}
	var m recordv1.TenantLimits
	if err := proto.Unmarshal(row, &m); err != nil {
		return nil, fmt.Errorf("tenant: undecodable limits of %q: %w", tenant, err)
	}
	return decode(&m), nil
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
