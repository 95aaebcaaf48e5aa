package tenant

import (
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
		EventsPerSecond: first(own.EventsPerSecond, standard.EventsPerSecond),
		BytesPerSecond:  first(own.BytesPerSecond, standard.BytesPerSecond),
		Streams:         first(own.Streams, standard.Streams),
		StoredBytes:     first(own.StoredBytes, standard.StoredBytes),
		RunningRuns:     first(own.RunningRuns, standard.RunningRuns),
		SelfAttestation: own.SelfAttestation || standard.SelfAttestation,
	}
}

func first(own, standard uint64) uint64 {
	if own != 0 {
		return own
	}
	return standard
}
