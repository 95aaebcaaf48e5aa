package events_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/storage/machine/metadata"
	"runlog/storage/storagetest"
)

// wire carries the messages of the API to a node and its answers back. An error is a gRPC status,
// whatever it travelled as.
type transport interface {
	// call makes a unary call; method is gRPC's full name.
	call(ctx context.Context, method string, req, resp proto.Message) error
	// read reads a stream of ReadEvents to its end.
	read(ctx context.Context, req *runlogv1.ReadEventsRequest) ([]*runlogv1.EventRecord, error)
	// ways are the calls that append to one run; each is to give the same.
	ways() []way
	// natural says that an event's payload travels as an object and not as its bytes.
	natural(e *contract.Event) bool
	// otherForm is the form of payloads that reads do not give by default.
	otherForm() runlogv1.PayloadForm_Form
	// restarted tells that the node was restarted: connections are gone.
	restarted()
}

type way func(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error)

// remote is a node as the suite of package storagetest drives it: over a wire, through the public
// API alone.
type remote struct {
	node      *servertest.Node
	wire      transport
	clock     atomic.Int64 // the node's
	proposals int
	positions map[string]bool // the tokens seen
	// said is what CreateRun has said of runs. What GetRun adds to it comes from events.
	said map[string]storage.Metadata
}

var _ storagetest.Remote = (*remote)(nil)

// opening returns what starts a node whose clock is the suite's.
func opening(connect func(*servertest.Node) transport) storagetest.RemoteFactory {
	return func(t *testing.T, check rapid.TB) storagetest.Remote {
		r := &remote{positions: map[string]bool{}, said: map[string]storage.Metadata{}}
		r.node = servertest.Start(t, func(o *server.Options) {
			o.Clock = func() time.Time { return time.Unix(0, r.clock.Load()) }
			o.OpaqueKeys = true // as a store takes them
		})
		check.(interface{ Cleanup(func()) }).Cleanup(r.shut)
		r.wire = connect(r.node)
		synctest.Wait() // The node leads, from its last stamp on, before the clock moves.
		return r
	}
}

func (r *remote) shut() {
	r.node.Close()
}

func (r *remote) Close() error {
	r.shut()
	return nil
}

func (r *remote) Reopen() error {
	// The node would slew its stamps if it began with a clock that is behind the last one; the
	// suite's stamps are exact.
	r.clock.Store(max(r.clock.Load(), r.node.Server.Internals().Replica.Store().Applied().PersistedAt))
	r.node.Restart()
	synctest.Wait()
	r.node.Server.Internals().Replica.Stamps().Next()
	r.wire.restarted()
	return nil
}

func (r *remote) call(method string, req, resp proto.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	return r.wire.call(ctx, method, req, resp)
}

// Fit implements storagetest.Remote. The API asks for more than a store, and changes the bytes of
// payloads that come as objects.
func (r *remote) Fit(req storagetest.Request) storagetest.Request {
	if u := req.Update; u != nil && u.Update.EngineRunRef == nil && u.Update.Labels == nil {
		update := *u
		update.Update.Labels = map[string]string{} // an update of nothing is refused
		return storagetest.Request{Update: &update}
	}
	if req.Append == nil {
		return req
	}
	a := *req.Append
	a.AppendedBy = contract.Author{} // a caller does not name itself
	a.OnlyNew = false                // no call has it
	if a.Create != nil {
		a.Create = completeCreation(a.Create)
		a.ExpectedLastSeq, a.Fence = nil, nil // CreateRun has neither
	}
	a.Events = slices.Clone(a.Events)
	scope, _ := storage.ScopeOf(&a) // of the drawn events, which agree
	for i := range a.Events {
		e := &a.Events[i]
		if e.Contract == contract.Line11 && e.Type == contract.RunStarted {
			completeRunStarted(e, scope)
		}
		if r.wire.natural(e) {
			e.Payload = canonicalJSON(e.Payload)
		}
	}
	return storagetest.Request{Append: &a}
}

// Propose implements storagetest.Remote.
func (r *remote) Propose(clock int64, requests []storagetest.Request) ([]storage.Outcome, error) {
	r.clock.Store(clock)
	r.proposals++
	var o storage.Outcome
	var err error
	previous := "" // the engine's reference that the call names
	switch req := requests[0]; {
	case req.SetRef != nil:
		o, err = r.setRef(req.SetRef)
	case req.Update != nil:
		previous = req.Update.Update.Previous
		o, err = r.update(req.Update)
	case req.Append.Create != nil:
		o, err = r.create(req.Append)
	default:
		o, err = r.append(req.Append)
	}
	if err != nil {
		o.Err, err = storageError(r.node.T, err, previous)
	}
	return []storage.Outcome{o}, err
}

func (r *remote) append(a *storage.Append) (storage.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	ways := r.wire.ways()
	resp, err := ways[r.proposals%len(ways)](ctx, &runlogv1.AppendEventsRequest{
		RunId: a.RunID, Events: r.encodeEvents(a.Events), ExpectedLastSeq: a.ExpectedLastSeq, Fence: a.Fence,
	})
	if err != nil {
		return storage.Outcome{}, err
	}
	// A position is opaque; all that can be said is that no other proposal has it.
	if resp.Position == "" || r.positions[resp.Position] {
		return storage.Outcome{}, fmt.Errorf("position %q, not a new one", resp.Position)
	}
	r.positions[resp.Position] = true
	return decodeOutcome(resp.Results, resp.LastSeq)
}

func (r *remote) create(a *storage.Append) (storage.Outcome, error) {
	mode := runlogv1.CreateMode_VALUE_UNSPECIFIED
	if a.Exclusive {
		mode = runlogv1.CreateMode_EXCLUSIVE
	}
	var resp runlogv1.CreateRunResponse
	err := r.call(runlogv1.RunService_CreateRun_FullMethodName, &runlogv1.CreateRunRequest{
		Run: encodeCreation(a.RunID, a.Create), Events: r.encodeEvents(a.Events), Mode: mode,
	}, &resp)
	if err != nil {
		return storage.Outcome{}, err
	}
	r.said[a.RunID] = a.Create.Metadata
	return decodeOutcome(resp.Results, resp.Run.LastSeq)
}

func (r *remote) setRef(s *storagetest.SetRef) (storage.Outcome, error) {
	var resp runlogv1.SetEngineRunRefResponse
	err := r.call(runlogv1.RunService_SetEngineRunRef_FullMethodName,
		&runlogv1.SetEngineRunRefRequest{RunId: s.RunID, EngineRunRef: s.Ref}, &resp)
	return storage.Outcome{LastSeq: resp.Run.GetLastSeq()}, err
}

func (r *remote) update(u *storagetest.Update) (storage.Outcome, error) {
	req := &runlogv1.UpdateRunRequest{RunId: u.RunID, UpdateMask: &fieldmaskpb.FieldMask{}}
	if u.Update.EngineRunRef != nil {
		req.EngineRunRef, req.PreviousEngineRunRef = u.Update.EngineRunRef, u.Update.Previous
		req.UpdateMask.Paths = append(req.UpdateMask.Paths, "engine_run_ref")
	}
	if u.Update.Labels != nil {
		req.Labels = u.Update.Labels
		req.UpdateMask.Paths = append(req.UpdateMask.Paths, "labels")
	}
	var resp runlogv1.UpdateRunResponse
	err := r.call(runlogv1.RunService_UpdateRun_FullMethodName, req, &resp)
	return storage.Outcome{LastSeq: resp.Run.GetLastSeq()}, err
}

// Run implements storagetest.Remote. The head of the chain is what the run's last event says.
func (r *remote) Run(runID string) (*storage.Run, error) {
	var resp runlogv1.GetRunResponse
	if err := r.call(runlogv1.RunService_GetRun_FullMethodName, &runlogv1.GetRunRequest{RunId: runID}, &resp); err != nil {
		known, err := storageError(r.node.T, err, "")
		return nil, errors.Join(known, err)
	}
	run := decodeRun(resp.Run, r.said[runID])
	if run.LastSeq == 0 {
		return run, nil
	}
	last, err := r.list(runID, run.LastSeq-1, runlogv1.PayloadForm_JSON)
	if err != nil {
		return nil, err
	}
	if len(last) != 1 {
		return nil, fmt.Errorf("%d events after %d, the run is at %d", len(last), run.LastSeq-1, run.LastSeq)
	}
	head, err := decodeRecord(last[0])
	run.PersistedAt, run.Chain = head.PersistedAt, head.ChainDigest
	return run, err
}

// Events implements storagetest.Remote. It reads them page by page in one form and as a stream in
// the other, and wants the same of both (READ-1, ENV-8).
func (r *remote) Events(runID string, after uint64) ([]storage.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	exact, err := r.list(runID, after, runlogv1.PayloadForm_FORM_UNSPECIFIED)
	if err != nil {
		return nil, err
	}
	natural, err := r.wire.read(ctx, &runlogv1.ReadEventsRequest{RunId: runID, AfterSeq: after, PayloadForm: r.wire.otherForm()})
	if err != nil {
		return nil, err
	}
	if r.wire.otherForm() == runlogv1.PayloadForm_JSON {
		exact, natural = natural, exact
	}
	if len(exact) != len(natural) {
		return nil, fmt.Errorf("%d events as bytes and %d as objects", len(exact), len(natural))
	}
	var records []storage.Record
	for i := range exact {
		if err := sameForms(exact[i], natural[i]); err != nil {
			return nil, fmt.Errorf("runSeq %d: %w", exact[i].RunSeq, err)
		}
		record, err := decodeRecord(exact[i])
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// list reads pages that are small, so that there are several.
func (r *remote) list(runID string, after uint64, form runlogv1.PayloadForm_Form) ([]*runlogv1.EventRecord, error) {
	var events []*runlogv1.EventRecord
	for {
		var resp runlogv1.ListEventsResponse
		req := &runlogv1.ListEventsRequest{RunId: runID, AfterSeq: after, PageSize: 20, PayloadForm: form}
		if err := r.call(runlogv1.EventService_ListEvents_FullMethodName, req, &resp); err != nil {
			return nil, err
		}
		events = append(events, resp.Events...)
		if after = resp.NextAfterSeq; after == 0 {
			return events, nil
		}
	}
}

// sameForms wants one record in both forms.
func sameForms(exact, natural *runlogv1.EventRecord) error {
	if proto.Equal(exact, natural) {
		return nil // Over HTTP a natural payload has its bytes.
	}
	given, ok := natural.PayloadForm.(*runlogv1.EventRecord_Payload)
	if !ok {
		return fmt.Errorf("payload is a %T", natural.PayloadForm)
	}
	if want := decodeValue(exact.GetPayloadJson()); !reflect.DeepEqual(given.Payload.AsMap(), want) {
		return fmt.Errorf("payload %v as an object, %v as bytes", given.Payload.AsMap(), want)
	}
	rest := proto.CloneOf(natural)
	rest.PayloadForm = exact.PayloadForm
	if !proto.Equal(rest, exact) {
		return fmt.Errorf("is %v in one form and %v in the other", natural, exact)
	}
	return nil
}

// storageError maps a refusal back to what the store said. Any other error is no outcome.
func storageError(t testing.TB, err error, previous string) (known, other error) {
	if _, ok := status.FromError(err); !ok {
		return nil, err
	}
	r := servertest.RefusalOf(t, err)
	if r.Code != r.Reason.Info().Code {
		return nil, fmt.Errorf("code %v for %s: %w", r.Code, r.Reason, err)
	}
	number := func(name string) uint64 {
		n, failure := strconv.ParseUint(r.Metadata[name], 10, 64)
		other = errors.Join(other, failure)
		return n
	}
	runID := r.Metadata["run_id"]
	switch r.Reason {
	case contract.ReasonRunNotFound:
		return &storage.RunNotFoundError{RunID: runID}, nil
	case contract.ReasonRunAlreadyExists:
		if current, named := r.Metadata["engine_run_ref"]; named {
			return &metadata.PreviousError{RunID: runID, Given: previous, Current: current}, nil
		}
		exists := &storage.RunExistsError{RunID: runID}
		if fields := r.Metadata["fields"]; fields != "" {
			exists.Fields = strings.Split(fields, ",")
		}
		if r.Metadata["index"] != "" {
			exists.NewEvent = int(number("index")) + 1
		}
		return exists, other
	case contract.ReasonSequenceConflict:
		return &storage.SequenceError{RunID: runID, Expected: number("expected_last_seq"), Last: number("last_seq")}, other
	case contract.ReasonLeaseLost:
		return &storage.LeaseLostError{RunID: runID, Given: number("fence"), Current: number("current_fence")}, other
	case contract.ReasonRunScopeMismatch:
		field := r.Metadata["field"]
		want := map[string]string{"tenantId": "run_tenant_id", "projectId": "run_project_id", "environmentId": "run_environment_id"}
		return &storage.ScopeError{RunID: runID, Field: field, Index: -1, Want: r.Metadata[want[field]]}, nil
	case contract.ReasonInvalidArgumentField:
		unscoped := &storage.UnscopedError{RunID: runID}
		for _, field := range []string{"tenantId", "projectId", "environmentId"} {
			if _, ok := r.Fields["events[0]."+field]; ok {
				unscoped.Fields = append(unscoped.Fields, field)
			}
		}
		if n := len(unscoped.Fields); n > 0 && n == len(r.Fields) {
			return unscoped, nil
		}
	}
	return nil, err
}
