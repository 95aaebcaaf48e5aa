package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client"
	"runlog/client/watcher"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	maxBody = 1 << 20 // but for manifests
	// callTimeout bounds calls that do not wait for a run, and runTimeout those that do.
	callTimeout = 30 * time.Second
	runTimeout  = time.Hour
)

// api serves the routes of ATT-1 to ATT-5.
type api struct {
	*Runner
	mux http.ServeMux
}

// Handler returns the HTTP API. It takes JSON, and answers with JSON. A fault of a call is
// {"error": …}, and a body with faults has them all in "faults", each with a JSON Pointer. It
// refuses the calls of foreign web pages.
func (r *Runner) Handler() http.Handler {
	a := &api{Runner: r}
	for pattern, h := range map[string]handler{
		"POST /api/manifests": a.createManifest, "GET /api/manifests": a.listManifests, "GET /api/manifests/{manifest}": a.getManifest,
		"POST /api/runs": a.createRun, "GET /api/runs": a.listRuns, "GET /api/runs/{run}": a.getRun, "POST /api/runs/{run}/resume": a.resume,
		"POST /api/runs/{run}/rerun": a.rerun, "POST /api/runs/{run}/steps/{step}/attest": a.attest,
	} {
		a.mux.HandleFunc(pattern, a.serve(h))
	}
	if r.o.Metrics != nil {
		a.mux.Handle("GET /metrics", r.o.Metrics)
	}
	return guarded(&a.mux)
}

// handler answers a call with a status and a body.
type handler func(ctx context.Context, c *client.Client, req *http.Request, body []byte) (status int, answer any, err error)

// httpError is an error with the status of its answer.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return e.message }

func (a *api) serve(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), runTimeout)
		defer cancel()
		c, done, err := a.o.As(req.Header.Get("Authorization"))
		if err != nil {
			answer(w, http.StatusUnauthorized, map[string]any{"error": err.Error()})
			return
		}
		defer done()
		most := int64(maxBody)
		if req.URL.Path == "/api/manifests" {
			most = maxManifest
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, most))
		if err != nil {
			answer(w, http.StatusRequestEntityTooLarge, map[string]any{"error": "the body cannot be read, or is too large"})
			return
		}
		status, says, err := h(ctx, c, req, body)
		if err != nil {
			status, says = refusal(err)
		}
		if e, ok := errors.AsType[*client.Error](err); ok && e.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
		}
		answer(w, status, says)
	}
}

func answer(w http.ResponseWriter, status int, says any) {
	body, err := json.Marshal(says)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // The caller may have left.
}

// refusal converts an error to an answer.
func refusal(err error) (int, any) {
	if e, ok := errors.AsType[*httpError](err); ok {
		return e.status, map[string]any{"error": e.message}
	}
	if e, ok := errors.AsType[*faultsError](err); ok {
		return http.StatusUnprocessableEntity, map[string]any{"error": e.Error(), "faults": e.faults}
	}
	if errors.Is(err, errNoManifest) {
		return http.StatusNotFound, map[string]any{"error": err.Error()}
	}
	if e, ok := errors.AsType[*contract.Error](err); ok { // An event of the body breaks a rule.
		return http.StatusUnprocessableEntity, map[string]any{"error": e.Message, "reason": e.Reason}
	}
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return http.StatusServiceUnavailable, map[string]any{"error": err.Error()}
	}
	status := map[codes.Code]int{
		codes.NotFound: http.StatusNotFound, codes.PermissionDenied: http.StatusForbidden, codes.Unauthenticated: http.StatusUnauthorized,
		codes.InvalidArgument: http.StatusUnprocessableEntity, codes.ResourceExhausted: http.StatusTooManyRequests,
		codes.FailedPrecondition: http.StatusConflict, codes.Aborted: http.StatusConflict, codes.AlreadyExists: http.StatusConflict,
	}[e.Code]
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	return status, map[string]any{"error": e.Message, "reason": e.Reason}
}

// errApproved refuses what a caller wants executed beside the approved plans.
var errApproved = &httpError{http.StatusForbidden, "this runner executes approved plans alone: have the plan approved, and request a run of it with runlog run request"}

func (a *api) createManifest(ctx context.Context, c *client.Client, _ *http.Request, body []byte) (int, any, error) {
	if a.o.Approved != nil {
		return 0, nil, errApproved
	}
	if err := a.admit(ctx, c, runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR); err != nil {
		return 0, nil, err
	}
	id, canonical, planned, err := a.parseManifest(body)
	if err == nil {
		err = a.storeManifest(ctx, id, canonical, planned)
	}
	return http.StatusCreated, map[string]any{"id": id}, err
}

func (a *api) getManifest(ctx context.Context, c *client.Client, req *http.Request, _ []byte) (int, any, error) {
	if err := a.admit(ctx, c, runlogv1.Role_READER, runlogv1.Role_AUDITOR, runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR); err != nil {
		return 0, nil, err
	}
	id := req.PathValue("manifest")
	text, err := a.loadManifest(ctx, id)
	if err != nil {
		return 0, nil, err
	}
	var m struct {
		ID string `json:"id"`
		Manifest
	}
	m.ID = id
	return http.StatusOK, &m, json.Unmarshal(text, &m.Manifest)
}

// createRun requests a run, and does not wait for it. Calls with the same Idempotency-Key request
// one run: its id comes from the key, so that another manifest with the key is refused by the log.
func (a *api) createRun(ctx context.Context, c *client.Client, req *http.Request, body []byte) (int, any, error) {
	if a.o.Approved != nil {
		return 0, nil, errApproved
	}
	var in struct {
		ManifestID  string `json:"manifest_id"`
		InitiatedBy string `json:"initiated_by"`
	}
	if err := decodeStrictly(body, &in); err != nil {
		return 0, nil, err
	}
	if err := required("initiated_by", in.InitiatedBy); err != nil {
		return 0, nil, err
	}
	if err := a.admit(ctx, c, runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR); err != nil {
		return 0, nil, err
	}
	text, err := a.loadManifest(ctx, in.ManifestID)
	if err != nil {
		return 0, nil, err
	}
	ref, err := a.refOf(ctx, text)
	if err != nil {
		return 0, nil, err
	}
	return a.request(ctx, c, req, &runlogv1.RequestRunRequest{PlanRef: ref.Proto(), TriggeredBy: &in.InitiatedBy})
}

// rerun requests a run that takes over what has succeeded in another one, with its parameters.
func (a *api) rerun(ctx context.Context, c *client.Client, req *http.Request, body []byte) (int, any, error) {
	if a.o.Approved != nil {
		return 0, nil, errApproved
	}
	var in struct {
		InitiatedBy string `json:"initiated_by"`
	}
	if err := decodeStrictly(body, &in); err != nil {
		return 0, nil, err
	}
	if err := required("initiated_by", in.InitiatedBy); err != nil {
		return 0, nil, err
	}
	run, s, err := a.load(ctx, c, req.PathValue("run"))
	if err != nil {
		return 0, nil, err
	}
	if s.Status != runlogv1.RunStatus_FAILED && s.Status != runlogv1.RunStatus_CANCELLED {
		return 0, nil, &httpError{http.StatusConflict, "the run is " + statusWord(s.Status, s.WaitingStep() != nil) + ": only one that has ended as error can be rerun"}
	}
	again := &runlogv1.RequestRunRequest{PlanRef: run.GetPlanRef(), TriggeredBy: &in.InitiatedBy, RerunOf: &run.RunId}
	if parameters := s.Parameters(); parameters != nil {
		again.Context = &structpb.Struct{}
		if err := protojson.Unmarshal(parameters, again.Context); err != nil {
			return 0, nil, err
		}
	}
	return a.request(ctx, c, req, again)
}

// request requests a run of this engine.
func (a *api) request(ctx context.Context, c *client.Client, req *http.Request, run *runlogv1.RequestRunRequest) (int, any, error) {
	id, engineType := uuid.NewString(), EngineType
	if key := req.Header.Get("Idempotency-Key"); key != "" {
		name := fmt.Appendf(nil, "%q %q %q %q", a.o.Tenant, a.o.Project, a.o.Environment, key)
		if run.RerunOf != nil {
			name = fmt.Appendf(name, " %q", *run.RerunOf)
		}
		id = uuid.NewSHA1(namespace, name).String()
	}
	run.RunRequestId, run.RunId, run.TenantId, run.ProjectId, run.EnvironmentId = id, id, a.o.Tenant, a.o.Project, a.o.Environment
	run.Queue, run.EngineType = a.o.Queue, &engineType
	res, err := c.RequestRun(ctx, run)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"id": id, "status": statusWord(res.GetRun().GetStatus(), false)}, nil
}

const (
	defaultLimit = 100 // of a list
	maxRuns      = 1000
)

// limitOf reads the limit of a list, which has at most so many.
func limitOf(query url.Values, most int) (limit int, err error) {
	text := query.Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > most {
		return 0, faulty("", "limit is %.20q: write 1 to %d", text, most)
	}
	return limit, nil
}

// listRuns lists the runs of this engine, the newest first. A page may have fewer than its limit:
// only an empty next_page_token says that there are no more.
func (a *api) listRuns(ctx context.Context, c *client.Client, req *http.Request, _ []byte) (int, any, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	query := req.URL.Query()
	limit, err := limitOf(query, maxRuns)
	if err != nil {
		return 0, nil, err
	}
	page, err := c.ListRunsPage(ctx, &runlogv1.ListRunsRequest{
		TenantId: a.o.Tenant, ProjectId: a.o.Project, EnvironmentId: a.o.Environment, PlanId: query.Get("manifest_id"),
		PageSize: uint32(limit), PageToken: query.Get("page_token"),
	})
	if err != nil {
		return 0, nil, err
	}
	runs := []listedRun{}
	for _, run := range page.GetRuns() {
		if run.GetEngineType() == EngineType {
			runs = append(runs, listedRun{
				ID: run.GetRunId(), ManifestID: run.GetPlanRef().GetPlanId(), Status: statusWord(run.GetStatus(), false), InitiatedBy: run.GetTriggeredBy(),
				StartedAt: timeOf(run.GetStartedAt().AsTime()), EndedAt: timeOf(run.GetCompletedAt().AsTime()),
			})
		}
	}
	return http.StatusOK, map[string]any{"runs": runs, "next_page_token": page.GetNextPageToken()}, nil
}

func required(name, value string) error {
	if value == "" || len(value) > 256 {
		return faulty("/"+name, "has %d bytes: write 1 to 256", len(value))
	}
	return nil
}

// waitUntilIdle waits until a step of a run waits for its attestation, the run is halted by an
// event behind a runSeq, or has ended. Up to the runSeq from, the run was none of that. It watches
// the events: a snapshot of each would cost more than the run.
func waitUntilIdle(ctx context.Context, c *client.Client, runID string, from, after uint64) (*runlogv1.RunSnapshot, error) {
	for e, err := range watcher.Events(ctx, c, runID, from, "") {
		if err != nil {
			return nil, err
		}
		switch e.GetEventType() {
		case contract.StepWaitingForAttestation, contract.RunCompleted, contract.RunFailed, contract.RunCancelled, contract.RunPaused:
		case contract.SignalAccepted:
			// A PAUSE takes back the RESUME of a paused run. No other event follows.
			if signalOf(e) != contract.SignalPause || e.GetRunSeq() <= after {
				continue
			}
		default:
			continue
		}
		got, err := c.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: runID, Consistency: runlogv1.Consistency_LINEARIZABLE})
		if err != nil {
			return nil, err
		}
		s := got.GetSnapshot()
		// Another writer may have ended the step that a run waits for.
		halted := s.GetStatus() == runlogv1.RunStatus_PAUSED || s.GetStatus() == runlogv1.RunStatus_WAITING
		if attestable(s) || ended(s.GetStatus()) || halted && s.GetLastEventSeq() > after {
			return s, nil
		}
	}
	return nil, ctx.Err()
}

// errNoRun means that the run is not one of this engine.
var errNoRun = &httpError{http.StatusNotFound, "there is no such run of this engine"}

// scoped is what a run and a snapshot have.
type scoped interface {
	GetEngineType() string
	GetTenantId() string
	GetProjectId() string
	GetEnvironmentId() string
}

// owned returns errNoRun if a run is not one of this engine in its scope, or if the log has no such
// run. The answers are the same (SEC-4).
func (r *Runner) owned(run scoped, err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok && (e.Code == codes.NotFound || e.Code == codes.InvalidArgument) {
		return errNoRun
	}
	if err != nil {
		return err
	}
	if run.GetEngineType() != EngineType || run.GetTenantId() != r.o.Tenant || run.GetProjectId() != r.o.Project || run.GetEnvironmentId() != r.o.Environment {
		return errNoRun
	}
	return nil
}

// load reads a run of this engine, as its caller may.
func (r *Runner) load(ctx context.Context, c *client.Client, runID string) (*runlogv1.Run, *replay.State, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	run, err := c.GetRun(ctx, &runlogv1.GetRunRequest{RunId: runID})
	if err := r.owned(run, err); err != nil {
		return nil, nil, err
	}
	s := replay.New()
	return run, s, s.Read(ctx, c, runID)
}

// getRun shows a run. With the parameter wait, it first waits until the run waits or has ended, at
// most for so long.
func (a *api) getRun(ctx context.Context, c *client.Client, req *http.Request, _ []byte) (int, any, error) {
	var wait time.Duration
	if text := req.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > runTimeout {
			return 0, nil, faulty("", "wait is %.20q: write a duration such as 60s, at most %v", text, runTimeout)
		}
	}
	id := req.PathValue("run")
	run, s, err := a.load(ctx, c, id)
	if err == nil && wait > 0 && statusWord(s.Status, s.WaitingStep() != nil) == "running" {
		limited, cancel := context.WithTimeout(ctx, wait)
		_, err = waitUntilIdle(limited, c, id, s.LastSeq, 0)
		over := limited.Err() != nil
		cancel()
		if err == nil || over {
			run, s, err = a.load(ctx, c, id)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, viewOf(run, s), nil
}

// resume has a worker go on with a run that waits (ATT-5).
func (a *api) resume(ctx context.Context, c *client.Client, req *http.Request, body []byte) (int, any, error) {
	var in struct {
		InitiatedBy string `json:"initiated_by"`
	}
	if err := decodeStrictly(body, &in); err != nil {
		return 0, nil, err
	}
	if err := required("initiated_by", in.InitiatedBy); err != nil {
		return 0, nil, err
	}
	id := req.PathValue("run")
	snapshot, err := c.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: id, Consistency: runlogv1.Consistency_LINEARIZABLE})
	s := snapshot.GetSnapshot()
	if err := a.owned(s, err); err != nil {
		return 0, nil, err
	}
	switch {
	case attestable(s):
	case s.GetStatus() == runlogv1.RunStatus_WAITING, s.GetStatus() == runlogv1.RunStatus_PAUSED:
		s, err = a.goOnWith(ctx, c, s, in.InitiatedBy)
	case s.GetStatus() == runlogv1.RunStatus_RUNNING:
		s, err = a.takeUp(ctx, c, s)
	default:
		err = notWaiting(s.GetStatus())
	}
	if err != nil {
		return 0, nil, err
	}
	counts := map[string]int{}
	for _, step := range s.GetSteps() {
		counts[stepWord(plan.Status(step.GetStatus().String()))]++
	}
	return http.StatusOK, map[string]any{"id": id, "status": statusWord(s.GetStatus(), attestable(s)), "steps": counts}, nil
}

func notWaiting(s runlogv1.RunStatus_Value) error {
	remedy := ""
	if ended(s) {
		remedy = "; rerun it, or start another run of its manifest"
	}
	return &httpError{http.StatusConflict, "the run is " + statusWord(s, false) + ": only a run that is waiting can be resumed" + remedy}
}

// attestable reports whether a step of a run that has not ended waits for its attestation.
func attestable(s *runlogv1.RunSnapshot) bool {
	return !ended(s.GetStatus()) && slices.ContainsFunc(s.GetSteps(), func(x *runlogv1.StepSnapshot) bool {
		return x.GetStatus() == runlogv1.StepStatus_WAITING_FOR_ATTESTATION
	})
}

// takeUp puts a run that another writer has resumed back into its queue, and returns what becomes
// of it. A run that a worker has, or is to have, is refused.
func (a *api) takeUp(ctx context.Context, c *client.Client, s *runlogv1.RunSnapshot) (*runlogv1.RunSnapshot, error) {
	runID := s.GetRunId()
	res, err := c.RequeueRun(ctx, &runlogv1.RequeueRunRequest{RunId: runID})
	if e, ok := errors.AsType[*client.Error](err); ok && e.Reason == client.ReasonRunNotQueued || err == nil && res.GetIdempotent() {
		return nil, notWaiting(runlogv1.RunStatus_RUNNING)
	}
	if err != nil {
		return nil, err
	}
	return waitUntilIdle(ctx, c, runID, s.GetLastEventSeq(), 0)
}

// goOnWith puts a run back into its queue, and returns what becomes of it. The signal has the name
// of the operator in the log. One that was accepted before counts too: its sender may have been
// killed.
func (a *api) goOnWith(ctx context.Context, c *client.Client, s *runlogv1.RunSnapshot, by string) (*runlogv1.RunSnapshot, error) {
	runID := s.GetRunId()
	res, err := c.SendSignal(ctx, &runlogv1.SendSignalRequest{RunId: runID, SignalId: uuid.NewString(), SignalType: "RESUME", Reason: "resumed by " + by})
	if err != nil {
		return nil, err
	}
	if why := res.GetRejectReason(); res.GetDecision() != runlogv1.Decision_ACCEPTED && why != "ALREADY_RESUMED" && why != "NOT_PAUSED" && why != "RUN_ENDED" {
		return nil, &httpError{http.StatusConflict, "the log has rejected RESUME: " + why}
	}
	// Without a place in a queue, another resume has brought the run to its end.
	_, err = c.RequeueRun(ctx, &runlogv1.RequeueRunRequest{RunId: runID})
	if e, ok := errors.AsType[*client.Error](err); err != nil && (!ok || e.Reason != client.ReasonRunNotQueued) {
		return nil, err
	}
	return waitUntilIdle(ctx, c, runID, s.GetLastEventSeq(), res.GetRunSeq())
}
