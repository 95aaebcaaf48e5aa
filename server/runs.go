package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	"runlog/storage/machine/enginerun"
)

const (
	maxRunsPage     = 1000
	defaultRunsPage = 100
	maxLabels       = 64 // of a run
	maxURI          = 2048
)

type runService struct {
	runlogv1.UnimplementedRunServiceServer
	s *Server
}

// CreateRun stores a run's metadata and first events in one atomic call (APP-12).
func (r *runService) CreateRun(ctx context.Context, req *runlogv1.CreateRunRequest) (*runlogv1.CreateRunResponse, error) {
	if err := checkRun(req.Run); err != nil {
		return nil, statusOf(err)
	}
	resp, err := atLeader(ctx, r.s, leaderRoute[*runlogv1.CreateRunResponse]{
		here: func() (*runlogv1.CreateRunResponse, error) { return r.createRun(ctx, req) },
		there: func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (*runlogv1.CreateRunResponse, error) {
			return runlogv1.NewRunServiceClient(conn).CreateRun(ctx, req, opts...)
		},
	})
	return resp, statusOf(err)
}

func (r *runService) createRun(ctx context.Context, req *runlogv1.CreateRunRequest) (*runlogv1.CreateRunResponse, error) {
	a := storage.Append{RunID: req.Run.RunId, Create: decodeCreation(req.Run)}
	if len(req.Events) > 0 {
		var err error
		if a.Events, err = contract.ValidateAll(req.Events, r.s.gate(req.Run.RunId)); err != nil {
			return nil, err
		}
	}
	_, results, err := r.s.append(ctx, &a)
	if err != nil {
		return nil, err
	}
	run, err := r.s.run(req.Run.RunId)
	if err != nil {
		return nil, err
	}
	return &runlogv1.CreateRunResponse{Run: run, Results: results}, nil
}

// GetRun returns a run's metadata, head and status.
func (r *runService) GetRun(ctx context.Context, req *runlogv1.GetRunRequest) (*runlogv1.GetRunResponse, error) {
	if fault := contract.NameFault(req.RunId); fault != "" {
		return nil, statusOf(invalid("runId", fault))
	}
	if err := r.s.readable(ctx, req.Consistency); err != nil {
		return nil, statusOf(err)
	}
	run, err := r.s.run(req.RunId)
	if err != nil {
		return nil, statusOf(err)
	}
	return &runlogv1.GetRunResponse{Run: run}, nil
}

// run reads a run and its status as of now.
func (s *Server) run(runID string) (_ *runlogv1.Run, err error) {
	v, err := s.store.View(runID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, err := s.projector.Snapshot(v)
	if err != nil {
		return nil, err
	}
	return encodeRun(v.Run, snapshot.Status), nil
}

// ListRuns pages through runs, newest first.
func (r *runService) ListRuns(ctx context.Context, req *runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
	size, err := pageSize(req.PageSize, defaultRunsPage, maxRunsPage)
	if err != nil {
		return nil, statusOf(err)
	}
	if req.OrderBy != "" && req.OrderBy != "newest" {
		return nil, statusOf(invalid("orderBy", `is not known; the one order is "newest"`))
	}
	filter, err := listFilter(req)
	if err != nil {
		return nil, statusOf(err)
	}
	token, err := parsePageToken(req.PageToken, r.s.clusterID, &filter)
	if err != nil {
		return nil, statusOf(err)
	}
	if err := r.s.readable(ctx, runlogv1.Consistency_LINEARIZABLE); err != nil {
		return nil, statusOf(err)
	}
	page, err := r.page(ctx, req.MinPosition, filter, token, size)
	if err != nil {
		return nil, statusOf(err)
	}
	rest := pageToken{position: max(page.Position, token.position), place: page.Next}
	resp := &runlogv1.ListRunsResponse{NextPageToken: rest.format(r.s.clusterID, &filter)}
	for _, item := range page.Runs {
		run, err := r.s.store.Run(item.RunID)
		if err != nil {
			return nil, statusOf(err)
		}
		resp.Runs = append(resp.Runs, encodeRun(run, item.Status))
	}
	return resp, nil
}

// page reads a page once the projection has got as far as it has to.
func (r *runService) page(
	ctx context.Context, minPosition string, f projector.Filter, token *pageToken, size int,
) (page projector.Page, err error) {
	least := token.position
	if minPosition != "" {
		at, err := parsePosition("minPosition", minPosition)
		if err != nil {
			return page, err
		}
		least = max(least, at)
	}
	ctx, cancel := r.s.waiting(ctx)
	defer cancel()
	for {
		if err := r.awaitProjection(ctx, least); err != nil {
			return page, err
		}
		// The projection may have been made anew since, and is at its begin again.
		if page, err = r.s.projector.List(f, token.place, size); err != nil || page.Position >= least {
			return page, err
		}
	}
}

func (r *runService) awaitProjection(ctx context.Context, at storage.Position) error {
	if r.s.projector.WaitPosition(ctx, at) == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &contract.Error{Reason: contract.ReasonNotReached,
			Message: "the projection has not reached minPosition, or the page before, from which pageToken is: try again"}
	}
	return fmt.Errorf("the projection has not reached minPosition or pageToken: %w", cause)
}

func listFilter(req *runlogv1.ListRunsRequest) (projector.Filter, error) {
	f := projector.Filter{
		TenantID: req.TenantId, ProjectID: req.ProjectId, EnvironmentID: req.EnvironmentId, PlanID: req.PlanId,
		Status: projector.RunStatus(req.Status),
	}
	if _, known := runlogv1.RunStatus_Value_name[int32(req.Status)]; !known {
		return f, invalid("status", "is not a run status")
	}
	var err error
	if f.CreatedAfter, err = bound("createdAfter", req.CreatedAfter); err != nil {
		return f, err
	}
	if f.CreatedBefore, err = bound("createdBefore", req.CreatedBefore); req.CreatedBefore != nil {
		f.CreatedBefore = max(f.CreatedBefore, 1) // 0 means any, and no run is older than 1970
	}
	return f, err
}

// bound turns a time into nanoseconds after 1970; 0 when it is not set.
func bound(field string, t *timestamppb.Timestamp) (int64, error) {
	switch {
	case t == nil:
		return 0, nil
	case !t.IsValid() || t.Seconds < 0 || t.Seconds >= math.MaxInt64/int64(time.Second):
		return 0, invalid(field, "is not a time between 1970 and 2262")
	default:
		return t.AsTime().UnixNano(), nil
	}
}

// SetEngineRunRef records the engine's own reference of a run, once (APP-12).
func (r *runService) SetEngineRunRef(ctx context.Context, req *runlogv1.SetEngineRunRefRequest) (*runlogv1.SetEngineRunRefResponse, error) {
	switch {
	case contract.NameFault(req.RunId) != "":
		return nil, statusOf(invalid("runId", contract.NameFault(req.RunId)))
	case req.EngineRunRef == "":
		return nil, statusOf(invalid("engineRunRef", "is required"))
	case uriFault(req.EngineRunRef) != "":
		return nil, statusOf(invalid("engineRunRef", uriFault(req.EngineRunRef)))
	}
	resp, err := atLeader(ctx, r.s, leaderRoute[*runlogv1.SetEngineRunRefResponse]{
		here: func() (*runlogv1.SetEngineRunRefResponse, error) { return r.setEngineRunRef(ctx, req) },
		there: func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (*runlogv1.SetEngineRunRefResponse, error) {
			return runlogv1.NewRunServiceClient(conn).SetEngineRunRef(ctx, req, opts...)
		},
	})
	return resp, statusOf(err)
}

func (r *runService) setEngineRunRef(ctx context.Context, req *runlogv1.SetEngineRunRefRequest) (*runlogv1.SetEngineRunRefResponse, error) {
	cmd, err := enginerun.EncodeSet(req.RunId, req.EngineRunRef)
	if err != nil {
		return nil, err
	}
	outcome, err := r.s.proposeCommand(ctx, cmd)
	if err = cmp.Or(err, outcome.Err); err != nil {
		return nil, err
	}
	run, err := r.s.run(req.RunId)
	if err != nil {
		return nil, err
	}
	return &runlogv1.SetEngineRunRefResponse{Run: run}, nil
}

// checkRun reports every fault of the metadata that CreateRun brings.
func checkRun(r *runlogv1.Run) error {
	if r == nil {
		return invalid("run", "is required")
	}
	var bad []contract.Violation
	check := func(field, value string, required bool, fault func(string) string) {
		text := ""
		switch {
		case value != "":
			text = fault(value)
		case required:
			text = "is required"
		}
		if text != "" {
			bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: text})
		}
	}
	check("run.runId", r.RunId, true, contract.NameFault)
	check("run.tenantId", r.TenantId, true, contract.TextFault)
	check("run.projectId", r.ProjectId, true, contract.TextFault)
	check("run.environmentId", r.EnvironmentId, true, contract.TextFault)
	check("run.planRef.planId", r.PlanRef.GetPlanId(), true, contract.NameFault)
	check("run.planRef.planVersion", r.PlanRef.GetPlanVersion(), true, contract.NameFault)
	check("run.planRef.uri", r.PlanRef.GetUri(), true, uriFault)
	check("run.planRef.sha256", r.PlanRef.GetSha256(), true, contract.TextFault)
	check("run.planRef.schemaVersion", r.PlanRef.GetSchemaVersion(), true, contract.TextFault)
	check("run.planRef.compression", r.PlanRef.GetCompression(), false, contract.TextFault)
	check("run.engineType", r.GetEngineType(), false, contract.TextFault)
	check("run.engineRunRef", r.GetEngineRunRef(), false, uriFault)
	check("run.triggeredBy", r.GetTriggeredBy(), false, contract.TextFault)
	check("run.triggerSource", r.GetTriggerSource(), false, contract.TextFault)
	if len(r.Labels) > maxLabels {
		bad = append(bad, contract.Violation{Field: "run.labels", Reason: contract.ReasonInvalidArgumentField,
			Description: fmt.Sprintf("has %d labels, at most %d", len(r.Labels), maxLabels)})
	} else {
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			check("run.labels", name, true, contract.TextFault)
			check("run.labels["+contract.Quote(name)+"]", r.Labels[name], false, contract.TextFault)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return contract.NewError(bad)
}

func uriFault(s string) string {
	switch {
	case len(s) > maxURI:
		return fmt.Sprintf("is %d bytes long: send at most %d", len(s), maxURI)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return "has a control character or is not UTF-8"
	default:
		return ""
	}
}

func decodeCreation(r *runlogv1.Run) *storage.Creation {
	c := &storage.Creation{
		Scope: storage.Scope{TenantID: r.TenantId, ProjectID: r.ProjectId, EnvironmentID: r.EnvironmentId},
		Metadata: storage.Metadata{
			EngineType: r.GetEngineType(), EngineRunRef: r.GetEngineRunRef(),
			TriggeredBy: r.GetTriggeredBy(), TriggerSource: r.GetTriggerSource(), Labels: r.Labels,
		},
	}
	if p := r.PlanRef; p != nil {
		c.Metadata.PlanRef = &storage.PlanRef{
			URI: p.Uri, SHA256: p.Sha256, SchemaVersion: p.SchemaVersion,
			PlanID: p.PlanId, PlanVersion: p.PlanVersion, SizeBytes: p.SizeBytes, Compression: p.Compression,
		}
	}
	return c
}
