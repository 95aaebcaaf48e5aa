// Package tenant is the machine of the settings of tenants: their limits (SEC-6).
//
//	D tenantId    the limits of a tenant; without a tenant: the default    record.v1.TenantLimits
//
// Invariant: no row has limits that are all 0.
package tenant

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Kind of the machine.
const Kind = 19

const limitTable = "D"

// Default is what the default of the cluster has in place of a tenant's name.
const Default = ""

// Cluster is the tenant of the runs that the nodes write, such as the access log. It has no limits.
const Cluster = "runlog"

// Machine is the storage.Machine of this package.
type Machine struct{}

var _ storage.Machine = Machine{}

// Kind implements storage.Machine.
func (Machine) Kind() uint32 { return Kind }

// Tables implements storage.Machine.
func (Machine) Tables() []storage.Table {
	return []storage.Table{{Prefix: []byte(limitTable), Name: "limits of tenants"}}
}

// Level implements storage.Machine.
func (Machine) Level([]byte) uint32 { return storage.CoreLevel }

// SelfAttestation is whether identities that requested or started a run may attest its steps
// (SEC-10). In the limits of a tenant, 0 is the default of the cluster, and in the default 0 is
// SelfAttestationForbidden.
type SelfAttestation uint32

// The values of SelfAttestation, as they are stored.
const (
	SelfAttestationAllowed   SelfAttestation = 1
	SelfAttestationForbidden SelfAttestation = 2
)

// Amounts are what a tenant may use. In the limits of a tenant, 0 is the default of the cluster; in
// the default and in what Effective returns, 0 is no limit.
type Amounts struct {
	EventsPerSecond, BytesPerSecond   uint64
	Streams, StoredBytes, RunningRuns uint64
	SelfAttestation                   SelfAttestation
}

// Limits are the limits of a tenant as they were set.
type Limits struct {
	Tenant string // or Default
	Amounts
	SetBy contract.Author
	// SetAt is set by apply, in nanoseconds.
	SetAt int64
}

// SetLimits is the operation that replaces the limits of a tenant, or the default. It is never
// refused.
func SetLimits(l *Limits) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.TenantOperation{
		Kind: &recordv1.TenantOperation_SetLimits{SetLimits: encode(l)},
	})
}

// Apply implements storage.Machine.
func (Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var m recordv1.TenantOperation
	if err := proto.Unmarshal(op, &m); err != nil {
		return nil, nil, fmt.Errorf("tenant: undecodable operation: %w", err)
	}
	set, ok := m.Kind.(*recordv1.TenantOperation_SetLimits)
	if !ok {
		return nil, nil, storage.ErrUnknownOperation
	}
	l := set.SetLimits
	key := limitKey(l.TenantId)
	if decode(l).Amounts == (Amounts{}) {
		tx.Delete(key)
		return nil, nil, nil
	}
	l.SetAt = tx.Stamp()
	return nil, nil, table.Set(tx, key, l)
}

func limitKey(tenant string) []byte { return []byte(limitTable + tenant) }

func encode(l *Limits) *recordv1.TenantLimits {
	return &recordv1.TenantLimits{
		TenantId: l.Tenant, EventsPerSecond: l.EventsPerSecond, BytesPerSecond: l.BytesPerSecond,
		Streams: l.Streams, StoredBytes: l.StoredBytes, RunningRuns: l.RunningRuns,
		SelfAttestation: uint32(l.SelfAttestation), SetBy: l.SetBy.Name, SetByTokenId: l.SetBy.TokenID,
	}
}

func decode(m *recordv1.TenantLimits) *Limits {
	return &Limits{
		Tenant: m.TenantId, SetBy: contract.Author{Name: m.SetBy, TokenID: m.SetByTokenId}, SetAt: m.SetAt,
		Amounts: Amounts{
			EventsPerSecond: m.EventsPerSecond, BytesPerSecond: m.BytesPerSecond,
			Streams: m.Streams, StoredBytes: m.StoredBytes, RunningRuns: m.RunningRuns,
			SelfAttestation: SelfAttestation(m.SelfAttestation),
		},
	}
}
