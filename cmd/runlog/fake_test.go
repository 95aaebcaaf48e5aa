package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeServer keeps events in memory under the real rules for valid events and keys, and shows what
// the test put in for everything else.
type fakeServer struct {
	runlogv1.UnimplementedEventServiceServer
	runlogv1.UnimplementedProjectionServiceServer
	runlogv1.UnimplementedRunServiceServer
	fakeCluster
	fakeAudit
	fakeLimits
	fakeQueues
	fakeSignals
	fakeSubscriptions

	snapshots map[string]*runlogv1.RunSnapshot
	runs      []*runlogv1.Run
	marks     []*runlogv1.WatchRunResponse // of every watch; after them it stays open
	down      error                        // the answer to every append, when set
	foreign   string                       // a run of a tenant that the caller may not write to
	fence     uint64                       // that of the newest lease; 0: none

	mu struct {
		sync.Mutex
		events map[string][]*runlogv1.EventRecord
	}
}

// seconds is a time n seconds into the tests' day.
func seconds(n float64) *timestamppb.Timestamp {
	day := time.Date(2026, 2, 11, 10, 30, 0, 0, time.UTC)
	return timestamppb.New(day.Add(time.Duration(n * float64(time.Second))))
}

func (f *fakeServer) AppendEvents(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if f.down != nil {
		return nil, f.down
	}
	if f.foreign != "" && req.GetRunId() == f.foreign {
		return nil, asStatus(&contract.Error{Reason: contract.ReasonPermissionDenied, Message: "token:ci may not write to that tenant"})
	}
	if req.Fence != nil && req.GetFence() != f.fence {
		return nil, asStatus(&contract.Error{Reason: contract.ReasonLeaseLost, Message: "another worker has the run"})
	}
	valid, err := contract.ValidateAll(req.GetEvents(), contract.Options{RunID: req.GetRunId()})
	if err != nil {
		return nil, asStatus(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.events == nil {
		f.mu.events = make(map[string][]*runlogv1.EventRecord)
	}
	res := &runlogv1.AppendEventsResponse{}
	for i := range valid {
		result := f.storeLocked(&valid[i])
		if likely, known := contract.LikelyType(valid[i].Type); contract.TypeCode(valid[i].Type) == 0 {
			result.UnknownType = true
			if known {
				result.DidYouMean = &likely
			}
		}
		for _, w := range valid[i].Warnings {
			result.Warnings = append(result.Warnings, &runlogv1.Warning{Field: w.Field, Description: w.Description})
		}
		res.Results = append(res.Results, result)
	}
	res.LastSeq = uint64(len(f.mu.events[req.GetRunId()]))
	return res, nil
}

func (f *fakeServer) storeLocked(e *contract.Event) *runlogv1.AppendResult {
	for _, old := range f.mu.events[e.RunID] {
		if old.GetIdempotencyKey() == e.IdempotencyKey {
			return &runlogv1.AppendResult{
				EventId: old.GetEventId(), RunSeq: old.GetRunSeq(), PersistedAt: old.GetPersistedAt(),
				Idempotent: true, Diverged: string(old.GetPayloadJson()) != string(e.Payload),
			}
		}
	}
	seq := uint64(len(f.mu.events[e.RunID]) + 1)
	record := &runlogv1.EventRecord{
		EventId: e.EventID.String(), EventType: e.Type, RunId: e.RunID, IdempotencyKey: e.IdempotencyKey,
		PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: e.Payload}, RunSeq: seq, PersistedAt: seconds(float64(seq)),
	}
	f.mu.events[e.RunID] = append(f.mu.events[e.RunID], record)
	return &runlogv1.AppendResult{EventId: record.GetEventId(), RunSeq: seq, PersistedAt: record.GetPersistedAt(), Persisted: true}
}

func (f *fakeServer) stored(run string) []*runlogv1.EventRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.events[run]
}

func (f *fakeServer) ListEvents(_ context.Context, req *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
	res := &runlogv1.ListEventsResponse{}
	for _, record := range f.stored(req.GetRunId()) {
		if record.GetRunSeq() > req.GetAfterSeq() && slices.Contains(req.GetTypes(), record.GetEventType()) {
			res.Events = append(res.Events, record)
		}
	}
	return res, nil
}

func (f *fakeServer) ReadEvents(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
	records := f.stored(req.GetRunId())
	if records == nil {
		return unknownRun(req.GetRunId())
	}
	return stream.Send(&runlogv1.ReadEventsResponse{Events: records[req.GetAfterSeq():]})
}

func (f *fakeServer) GetSnapshot(_ context.Context, req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
	if f.snapshots[req.GetRunId()] == nil {
		return nil, unknownRun(req.GetRunId())
	}
	return &runlogv1.GetSnapshotResponse{Snapshot: f.snapshots[req.GetRunId()]}, nil
}

func (f *fakeServer) WatchRun(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	marks := f.marks
	switch req.GetView() {
	case runlogv1.WatchView_SNAPSHOT:
		marks = []*runlogv1.WatchRunResponse{{Kind: &runlogv1.WatchRunResponse_Snapshot{Snapshot: f.snapshots[req.GetRunId()]}}}
	case runlogv1.WatchView_EVENT:
		batch := &runlogv1.EventBatch{Events: f.stored(req.GetRunId())}
		marks = []*runlogv1.WatchRunResponse{{Kind: &runlogv1.WatchRunResponse_Events{Events: batch}}}
	}
	for _, mark := range marks {
		if err := stream.Send(mark); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// WatchRuns tells of the runs in a status, as ListRuns does, and of nothing more.
func (f *fakeServer) WatchRuns(req *runlogv1.WatchRunsRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]) error {
	for _, run := range f.runs {
		if len(req.GetStatus()) > 0 && !slices.Contains(req.GetStatus(), run.GetStatus()) {
			continue
		}
		if err := stream.Send(&runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_Watermark{Watermark: &runlogv1.Watermark{
			RunId: run.GetRunId(), LastEventSeq: run.GetLastSeq(), Status: run.GetStatus(), PersistedAt: run.GetCreatedAt(),
		}}}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (f *fakeServer) GetRun(_ context.Context, req *runlogv1.GetRunRequest) (*runlogv1.GetRunResponse, error) {
	for _, run := range f.runs {
		if run.GetRunId() == req.GetRunId() {
			return &runlogv1.GetRunResponse{Run: run}, nil
		}
	}
	return nil, unknownRun(req.GetRunId())
}

func (f *fakeServer) ListRuns(_ context.Context, req *runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
	res := &runlogv1.ListRunsResponse{}
	for _, run := range f.runs {
		at := run.GetCreatedAt().AsTime()
		if (len(req.GetStatus()) == 0 || slices.Contains(req.GetStatus(), run.GetStatus())) && (req.CreatedAfter == nil ||
			at.After(req.GetCreatedAfter().AsTime())) && (req.CreatedBefore == nil || at.Before(req.GetCreatedBefore().AsTime())) {
			res.Runs = append(res.Runs, run)
		}
	}
	return res, nil
}

func unknownRun(id string) error {
	return asStatus(&contract.Error{
		Reason:  contract.ReasonRunNotFound,
		Message: "run " + strconv.Quote(id) + " does not exist. " + contract.ReasonRunNotFound.Info().Help,
	})
}

// asStatus turns a contract error into what the server sends.
func asStatus(err error) error {
	e, ok := errors.AsType[*contract.Error](err)
	if !ok {
		return err
	}
	badRequest := &errdetails.BadRequest{}
	for _, v := range e.Violations {
		badRequest.FieldViolations = append(badRequest.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: v.Field, Reason: string(v.Reason), Description: v.Description,
		})
	}
	st, err := status.New(e.Code(), e.Message).WithDetails(
		&errdetails.ErrorInfo{Domain: "runlog", Reason: string(e.Reason), Metadata: e.Metadata}, badRequest)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return st.Err()
}

// serve starts the fake and returns how to reach it; it ends with the test.
func (f *fakeServer) serve(t *testing.T) []grpc.DialOption {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	runlogv1.RegisterEventServiceServer(server, f)
	runlogv1.RegisterProjectionServiceServer(server, f)
	runlogv1.RegisterRunServiceServer(server, f)
	runlogv1.RegisterClusterServiceServer(server, &f.fakeCluster)
	runlogv1.RegisterAccessServiceServer(server, &f.fakeLimits)
	runlogv1.RegisterAuditServiceServer(server, &f.fakeAudit)
	runlogv1.RegisterQueueServiceServer(server, &f.fakeQueues)
	runlogv1.RegisterSignalServiceServer(server, &f.fakeSignals)
	runlogv1.RegisterSubscriptionServiceServer(server, &f.fakeSubscriptions)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return []grpc.DialOption{grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })}
}
