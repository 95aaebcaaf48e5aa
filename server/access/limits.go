package access

import (
	"context"
	"fmt"
	"math"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/limits"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage/machine/queue"
	"runlog/storage/machine/tenant"
)

// noLimit is what clients send for no limit where the default has one.
const noLimit = math.MaxUint64

// GetTenantLimits returns the limits of a tenant that the caller has (SEC-6).
func (s *Service) GetTenantLimits(ctx context.Context, req *runlogv1.GetTenantLimitsRequest) (*runlogv1.GetTenantLimitsResponse, error) {
	name, err := settingsOf(req.TenantId)
	if err != nil {
		return nil, err
	}
	// A tenant is never said to exist: any that the caller does not have gets the same answer.
	if i := auth.From(ctx); !i.Sees(req.TenantId) {
		return nil, &contract.Error{Reason: contract.ReasonPermissionDenied,
			Message: fmt.Sprintf("%s does not have the tenant %s; ask an admin of the cluster", i.Name, contract.Quote(req.TenantId))}
	}
	if err := s.opts.Node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	own, standard, err := tenant.Read(s.opts.Node.Store(), name)
	if err != nil {
		return nil, err
	}
	usage, err := s.usage(name)
	if err != nil {
		return nil, err
	}
	return &runlogv1.GetTenantLimitsResponse{
		Limits: wireLimits(own.Amounts), Effective: wireLimits(tenant.Effective(own, standard)),
		SetTime: wire.Timestamp(own.SetAt), SetBy: wire.Optional(own.SetBy.Name), SetByTokenId: wire.Optional(own.SetBy.TokenID), Usage: usage,
	}, nil
}

// usage returns what a tenant has; nil for the default.
func (s *Service) usage(name string) (*runlogv1.TenantUsage, error) {
	if name == tenant.Default {
		return nil, nil
	}
	stored, err := s.opts.Usage.StoredBytes(name)
	if err != nil {
		return nil, err
	}
	runs, err := s.opts.Usage.OpenRuns(name, limits.MaxRunningRuns)
	if err != nil {
		return nil, err
	}
	queues, err := queue.TotalOf(s.opts.Node.Store(), name)
	return &runlogv1.TenantUsage{
		StoredBytes: stored, RunningRuns: uint64(runs), Queues: queues.Queues, QueuedRuns: queues.Waiting, LeasedRuns: queues.Leased,
	}, err
}

// SetTenantLimits replaces the limits of a tenant, or the default.
func (s *Service) SetTenantLimits(ctx context.Context, req *runlogv1.SetTenantLimitsRequest) (*runlogv1.SetTenantLimitsResponse, error) {
	name, err := settingsOf(req.TenantId)
	switch {
	case err != nil:
		return nil, err
	case req.Limits == nil:
		return nil, rpc.Invalid("limits", "is required: all limits are replaced, and {} gives the tenant the default of the cluster again")
	case name == tenant.Cluster:
		return nil, rpc.Invalid("tenantId", "is the tenant of the access log, which has no limits; name another")
	case req.Limits.RunningRuns > limits.MaxRunningRuns && req.Limits.RunningRuns != noLimit:
		return nil, rpc.Invalid("limits.runningRuns", fmt.Sprintf("is at most %d; the largest 64-bit number is no limit", limits.MaxRunningRuns))
	}
	if runlogv1.SelfAttestation_Value_name[int32(req.Limits.SelfAttestation)] == "" {
		return nil, rpc.Invalid("limits.selfAttestation", "is unknown: send ALLOWED or FORBIDDEN, or leave it out for the default of the cluster")
	}
	err = s.execute(ctx)(tenant.SetLimits(&tenant.Limits{Tenant: name, SetBy: auth.From(ctx).Authenticated(), Amounts: tenant.Amounts{
		EventsPerSecond: req.Limits.EventsPerSecond, BytesPerSecond: req.Limits.BytesPerSecond, Streams: req.Limits.Streams,
		StoredBytes: req.Limits.StoredBytes, RunningRuns: req.Limits.RunningRuns,
		SelfAttestation: tenant.SelfAttestation(req.Limits.SelfAttestation),
	}}))
	if err != nil {
		return nil, err
	}
	own, standard, err := tenant.Read(s.opts.Node.Store(), name)
	if err != nil {
		return nil, err
	}
	return &runlogv1.SetTenantLimitsResponse{Limits: wireLimits(own.Amounts), Effective: wireLimits(tenant.Effective(own, standard))}, nil
}

// settingsOf returns the name under which the settings of a tenant are stored.
func settingsOf(tenantID string) (string, error) {
	if tenantID == auth.AllTenants {
		return tenant.Default, nil
	}
	if fault := contract.ScopeFault(tenantID); fault != "" {
		return "", rpc.Invalid("tenantId", fault+"; or send \"*\" for the default of the cluster")
	}
	return tenantID, nil
}

func wireLimits(a tenant.Amounts) *runlogv1.TenantLimits {
	return &runlogv1.TenantLimits{
		EventsPerSecond: a.EventsPerSecond, BytesPerSecond: a.BytesPerSecond, Streams: a.Streams,
		StoredBytes: a.StoredBytes, RunningRuns: a.RunningRuns, SelfAttestation: runlogv1.SelfAttestation_Value(a.SelfAttestation),
	}
}
