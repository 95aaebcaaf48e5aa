package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeAudit answers windows from a few records, under the real rules for digests and statements.
type fakeAudit struct {
	runlogv1.UnimplementedAuditServiceServer

	records []*runlogv1.EventRecord // in commit order
	now     time.Time               // windows up to it are closed
	unsure  bool                    // it cannot tell which types it has
	breaks  int                     // so many streams end behind their first message
	signer  *proof.Signer           // nil: statements are not signed
	lie     func(*proof.Export)     // changes what is stated
}

var fakeClusterID = [16]byte{0x01, 0x91, 0xa3, 0xc8}

func fakeSigner(key byte) *proof.Signer {
	s, err := proof.NewSigner(fakeClusterID, [32]byte{key})
	if err != nil {
		panic(err)
	}
	return s
}

// sampleAudit has six records of two runs, and ends in March 2026.
func sampleAudit() *fakeAudit {
	f := &fakeAudit{now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), signer: fakeSigner(1)}
	chains := map[string]*contract.Digest{"run-1": {}, "run-2": {}}
	for i, kind := range []string{"RunStarted", "RunStarted", "StepStarted", "StepFailed", "Custom\"1,2", "RunFailed"} {
		run, seq := "run-1", uint64(i/2+1)
		if i%2 == 1 {
			run = "run-2"
		}
		e := contract.Event{
			EventID: contract.EventID{1, 0x96, 0x3f, 0x2a, 0, 0, 0x70, 15: byte(i)}, Type: kind, RunID: run, TenantID: "acme", ProjectID: "data", EnvironmentID: "prod",
			PlanID: "nightly", PlanVersion: "1.2", LogicalAttemptID: 1, EngineAttemptID: uint32(i + 1), IdempotencyKey: fmt.Sprint("key-", i),
			EmittedAt: seconds(float64(i)).AsTime().UnixNano(), Payload: fmt.Appendf(nil, "{\"n\": %d,\n \"text\": \"é\"}", i),
		}
		if contract.ScopeOf(kind) == contract.ScopeStep {
			e.StepID, e.EmittedBy = "load", "worker-7"
		}
		payload, record := e.Digests(contract.Salt{9}, contract.Author{}, contract.Original{})
		at := seconds(float64(i) + 0.25)
		chain := contract.ChainDigest(*chains[run], record, seq, at.AsTime().UnixNano())
		*chains[run] = chain
		m := &runlogv1.EventRecord{
			EventId: e.EventID.String(), EventType: e.Type, RunId: e.RunID, TenantId: e.TenantID, ProjectId: e.ProjectID, EnvironmentId: e.EnvironmentID,
			PlanId: e.PlanID, PlanVersion: e.PlanVersion, LogicalAttemptId: 1, EngineAttemptId: e.EngineAttemptID, IdempotencyKey: e.IdempotencyKey,
			EmittedAt: timestamppb.New(time.Unix(0, e.EmittedAt)), ContractVersion: "2.0.0", RunSeq: seq, PersistedAt: at,
			PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: e.Payload},
			PayloadSalt: contract.Salt{9}.String(), PayloadDigest: payload.String(), RecordDigest: record.String(), ChainDigest: chain.String(),
		}
		if e.StepID != "" {
			m.StepId, m.EmittedBy = &e.StepID, &e.EmittedBy
		}
		f.records = append(f.records, m)
	}
	return f
}

// window is what both calls name.
type window interface {
	GetFrom() *timestamppb.Timestamp
	GetTo() *timestamppb.Timestamp
	GetTenantId() string
	GetRunId() string
	GetTypes() []string
}

// find returns the events of a window and what can be stated of them.
func (f *fakeAudit) find(w window) (records []*runlogv1.EventRecord, e proof.Export) {
	e = proof.Export{
		Cluster: fakeClusterID, To: f.now.UnixNano(), TenantID: w.GetTenantId(), RunID: w.GetRunId(),
		Types: slices.Sorted(slices.Values(w.GetTypes())), CompleteThrough: f.now.UnixNano(), Position: 42,
	}
	if w.GetFrom() != nil {
		e.From = w.GetFrom().AsTime().UnixNano()
	}
	if w.GetTo() != nil {
		e.To = w.GetTo().AsTime().UnixNano()
	}
	for _, r := range f.records {
		at := r.GetPersistedAt().AsTime().UnixNano()
		if at < e.From || at >= e.To || e.TenantID != "" && e.TenantID != r.GetTenantId() || e.RunID != "" && e.RunID != r.GetRunId() ||
			len(e.Types) > 0 && !slices.Contains(e.Types, r.GetEventType()) {
			continue
		}
		records = append(records, r)
		e.Count++
		e.Digest = contract.WindowDigest(e.Digest, &contract.Event{}, parsedDigest(r.GetRecordDigest()), r.GetRunSeq(), at, parsedDigest(r.GetChainDigest()))
	}
	return records, e
}

func parsedDigest(text string) contract.Digest {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return contract.Digest(b)
}

func (f *fakeAudit) QueryEvents(_ context.Context, req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error) {
	records, e := f.find(req)
	from, _ := strconv.Atoi(req.GetPageToken())
	size := int(req.GetPageSize())
	if size == 0 {
		size = 1000
	}
	to := min(from+size, len(records))
	res := &runlogv1.QueryEventsResponse{
		Events: records[from:to], CompleteThrough: timestamppb.New(time.Unix(0, e.CompleteThrough)), Closed: e.Closed(), Count: uint64(to),
		Digest: e.Digest.String(), From: timestamppb.New(time.Unix(0, e.From)), To: timestamppb.New(time.Unix(0, e.To)),
	}
	if req.GetPageToken() == "" {
		res.Unseen = f.unseen(req)
	}
	if to < len(records) {
		res.NextPageToken = strconv.Itoa(to)
	}
	return res, nil
}

// ListSigningKeys answers as a cluster that has no key yet.
func (f *fakeAudit) ListSigningKeys(context.Context, *runlogv1.ListSigningKeysRequest) (*runlogv1.ListSigningKeysResponse, error) {
	return &runlogv1.ListSigningKeysResponse{}, nil
}

// unseen returns the values of a filter that no record has.
func (f *fakeAudit) unseen(req *runlogv1.QueryEventsRequest) (list []*runlogv1.UnseenValue) {
	has := func(field, value string, of func(*runlogv1.EventRecord) string) {
		if value != "" && !slices.ContainsFunc(f.records, func(r *runlogv1.EventRecord) bool { return of(r) == value }) {
			v := &runlogv1.UnseenValue{Field: field, Value: value, Uncertain: f.unsure}
			if field == "types" {
				v.DidYouMean, _ = contract.LikelyType(value)
			}
			list = append(list, v)
		}
	}
	has("tenantId", req.GetTenantId(), (*runlogv1.EventRecord).GetTenantId)
	has("runId", req.GetRunId(), (*runlogv1.EventRecord).GetRunId)
	for _, t := range req.GetTypes() {
		has("types", t, (*runlogv1.EventRecord).GetEventType)
	}
	return list
}

func (f *fakeAudit) ExportEvents(req *runlogv1.ExportEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error {
	records, e := f.find(req)
	from, _ := strconv.Atoi(req.GetPageToken())
	for ; from < len(records); from++ {
		if err := stream.Send(&runlogv1.ExportEventsResponse{
			Events: records[from : from+1], ReadThrough: records[from].GetPersistedAt(), ResumeToken: strconv.Itoa(from + 1),
		}); err != nil {
			return err
		}
		if f.breaks--; f.breaks >= 0 {
			return status.Error(codes.Unavailable, "the node is gone")
		}
	}
	if f.lie != nil {
		f.lie(&e)
	}
	statement := proof.Unsigned(e.Statement())
	if f.signer != nil {
		var err error
		if statement, err = f.signer.Sign(e.Statement()); err != nil {
			return err
		}
	}
	return stream.Send(&runlogv1.ExportEventsResponse{Summary: &runlogv1.ExportSummary{
		Count: e.Count, Digest: e.Digest.String(), CompleteThrough: timestamppb.New(time.Unix(0, e.CompleteThrough)), Closed: e.Closed(),
		From: timestamppb.New(time.Unix(0, e.From)), To: timestamppb.New(time.Unix(0, e.To)), ClusterId: fmt.Sprintf("%x", e.Cluster), Position: "AQU", Statement: statement,
	}})
}
