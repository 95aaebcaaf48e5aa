package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// fakeLimits keeps the limits of one tenant. The default has 1,000 events a second.
type fakeLimits struct {
	runlogv1.UnimplementedAccessServiceServer

	limits runlogv1.TenantLimits
}

func (f *fakeLimits) effective() *runlogv1.TenantLimits {
	e := proto.CloneOf(&f.limits)
	if e.EventsPerSecond == 0 {
		e.EventsPerSecond = 1000
	}
	if e.SelfAttestation == runlogv1.SelfAttestation_VALUE_UNSPECIFIED {
		e.SelfAttestation = runlogv1.SelfAttestation_FORBIDDEN
	}
	return e
}

func (f *fakeLimits) GetTenantLimits(context.Context, *runlogv1.GetTenantLimitsRequest) (*runlogv1.GetTenantLimitsResponse, error) {
	return &runlogv1.GetTenantLimitsResponse{
		Limits: &f.limits, Effective: f.effective(), Usage: &runlogv1.TenantUsage{StoredBytes: 73_400_320, RunningRuns: 12},
	}, nil
}

func (f *fakeLimits) SetTenantLimits(_ context.Context, req *runlogv1.SetTenantLimitsRequest) (*runlogv1.SetTenantLimitsResponse, error) {
	proto.Reset(&f.limits)
	proto.Merge(&f.limits, req.Limits)
	return &runlogv1.SetTenantLimitsResponse{Limits: &f.limits, Effective: f.effective()}, nil
}

// TestGoldenTenant shows what operators see: a flag that is left out keeps its limit (SEC-6).
func TestGoldenTenant(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	fake := &fakeServer{}
	for _, args := range []string{
		"tenant limits acme", "tenant limits acme --events-per-second 5000 --streams none", "tenant limits acme --bytes-per-second 20MiB -o json",
		"tenant limits acme --stored-bytes 1TiB --running-runs 500",
		"tenant limits --events-per-second 0", "tenant limits a b", "tenant limits acme --streams few",
		"tenant limits acme --self-attestation allowed -o json", "tenant limits acme --streams 3", "tenant limits acme --self-attestation default",
		"tenant limits acme --self-attestation yes", "tenant limits --help",
	} {
		s := &invocation{args: strings.Fields(args)}
		s.do(t.Context(), t, fake)
		got.WriteString(s.text())
	}
	golden(t, "tenant-limits", got.String())
}
