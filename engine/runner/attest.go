package runner

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine/plan"
	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
)

// attestation is the body of attest (ATT-4).
type attestation struct {
	AttestedBy string             `json:"attested_by"`
	Outcome    string             `json:"outcome"`
	Notes      string             `json:"notes"`
	Artifacts  []attestedArtifact `json:"artifacts"`
}

type attestedArtifact struct {
	Name   string `json:"name"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256,omitempty"`
	Bytes  *int64 `json:"bytes,omitempty"`
}

func (in *attestation) check() error {
	var faults []plan.Fault
	add := func(bad bool, path, message string) {
		if bad {
			faults = append(faults, plan.Fault{Path: path, Message: message})
		}
	}
	add(in.AttestedBy == "" || len(in.AttestedBy) > 256, "/attested_by", "is required, of at most 256 bytes")
	add(in.Outcome != "SUCCESS" && in.Outcome != "FAIL", "/outcome", "is not SUCCESS or FAIL")
	add(len(in.Artifacts) > 1000, "/artifacts", "has more than 1000 elements")
	for i, x := range in.Artifacts {
		at := "/artifacts/" + strconv.Itoa(i)
		add(x.Name == "", at+"/name", "is required")
		add(uriFault(x.URI) != "", at+"/uri", uriFault(x.URI))
		add(x.SHA256 != "" && !isDigest(x.SHA256), at+"/sha256", "is not 64 digits of lower-case hex")
		add(x.Bytes != nil && *x.Bytes < 0, at+"/bytes", "is below 0")
	}
	if len(faults) > 0 {
		return &faultsError{faults}
	}
	return nil
}

func uriFault(text string) string {
	u, err := url.Parse(text)
	if text == "" || len(text) > 2048 || err != nil || u.Scheme == "" {
		return "is no URI of at most 2,048 bytes, such as s3://bucket/model.xlsx"
	}
	return ""
}

func isDigest(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// maxConflicts bounds how often an attestation is tried again because another event came first.
const maxConflicts = 100

// attest stores an attestation (ATT-4). It does not resume the run. After FAIL the run has failed.
func (a *api) attest(ctx context.Context, c *client.Client, req *http.Request, body []byte) (int, any, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var in attestation
	if err := decodeStrictly(body, &in); err != nil {
		return 0, nil, err
	}
	if err := in.check(); err != nil {
		return 0, nil, err
	}
	runID, stepRunID := req.PathValue("run"), req.PathValue("step")
	run, s, err := a.load(ctx, c, runID)
	if err != nil {
		return 0, nil, err
	}
	if err := mayAttest(ctx, c, in.AttestedBy); err != nil {
		return 0, nil, err
	}
	for range maxConflicts {
		step, current := stepOf(runID, stepRunID, s)
		switch {
		case step == nil:
			return 0, nil, &httpError{http.StatusNotFound, "the run has no such step run"}
		case !current:
			return 0, nil, &httpError{http.StatusConflict, "the step run is over, and the step has another one: look at the run"}
		case s.Ended():
			return 0, nil, &httpError{http.StatusConflict, "the run has ended: its steps can no longer be attested; start another run"}
		case step.Status != replay.Waiting || step.Attested != nil:
			return 0, nil, &httpError{http.StatusConflict, "the step run is " + stepWord(step.Status) + ": only one that is WAITING_FOR_ATTESTATION can be attested, once"}
		}
		stored, err := in.store(ctx, c, run, s, step)
		if err != nil {
			return 0, nil, err
		}
		if stored {
			return http.StatusOK, map[string]any{"ok": true, "step_run_id": stepRunID, "new_status": in.Outcome}, nil
		}
		if err := read(ctx, c, runID, s); err != nil { // Another event came first.
			return 0, nil, err
		}
	}
	return 0, nil, &httpError{http.StatusServiceUnavailable, "other events of the run came first, again and again: retry"}
}

// stepOf returns the step of a step run, and whether that is its current one. nil: the run has
// none.
func stepOf(runID, stepRunID string, s *replay.State) (step *replay.Step, current bool) {
	for _, step := range s.Steps {
		if StepRunID(runID, step.ID, step.Attempt) == stepRunID {
			return step, true
		}
		for _, attempt := range step.Earlier {
			if StepRunID(runID, step.ID, attempt) == stepRunID {
				return step, false
			}
		}
	}
	return nil, false
}

// mayAttest refuses an attestation in the name of another identity (ATT-6). The name has its kind,
// such as token:jed: a certificate may have the subject jed too. An administrator may act for
// others, and so may a caller of a node without access control.
func mayAttest(ctx context.Context, c *client.Client, attestedBy string) error {
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return err
	}
	name := who.GetName()
	if name == attestedBy || slices.Contains(who.GetRoles(), runlogv1.Role_ADMIN) {
		return nil
	}
	return &httpError{http.StatusForbidden, "attested_by is not the caller: send " + strconv.Quote(name) + ", or have an administrator attest"}
}

// events returns the events of the attestation of a step: that of FAIL ends the run too.
func (in *attestation) events(run *runlogv1.Run, step *replay.Step) ([]*runlogv1.EventWrite, error) {
	named := events.Run{
		ID: run.GetRunId(), Tenant: run.GetTenantId(), Project: run.GetProjectId(), Environment: run.GetEnvironmentId(),
		Plan: run.GetPlanRef().GetPlanId(), PlanVersion: run.GetPlanRef().GetPlanVersion(), EmittedBy: in.AttestedBy,
	}
	payload := map[string]any{
		"outcome": in.Outcome, "attestedBy": in.AttestedBy, "attestedAt": time.Now().UTC().Format(time.RFC3339Nano),
		"contract": json.RawMessage("null"),
	}
	if in.Notes != "" {
		payload["notes"] = in.Notes
	}
	if len(in.Artifacts) > 0 {
		payload["artifacts"] = in.Artifacts
	}
	if contract := contractOf(step.Waiting); contract != nil {
		payload["contract"] = contract
	}
	attempt := events.Attempt{Logical: step.Attempt, Engine: 1}
	text, err := marshal(payload)
	if err != nil {
		return nil, err
	}
	e, err := named.StepAttested(step.ID, attempt, json.RawMessage(text))
	if err != nil || in.Outcome != "FAIL" {
		return []*runlogv1.EventWrite{e}, err
	}
	failed, err := named.Failed(once, map[string]any{"error": map[string]any{
		"code": "ATTESTED_FAIL", "message": "an operator has attested that step " + step.ID + " failed", "retryable": false,
	}})
	return []*runlogv1.EventWrite{e, failed}, err
}

// store appends the attestation behind the last event that is known; false: another event, or
// another attestation, came first.
func (in *attestation) store(ctx context.Context, c *client.Client, run *runlogv1.Run, s *replay.State, step *replay.Step) (bool, error) {
	list, err := in.events(run, step)
	if err != nil {
		return false, err
	}
	last := s.LastSeq
	res, err := c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run.GetRunId(), Events: list, ExpectedLastSeq: &last})
	if conflict, ok := errors.AsType[*client.Error](err); ok && conflict.Reason == client.ReasonSequenceConflict {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// A retry of the client finds what it has stored. Another attestation has another id.
	got := res.GetResults()[0]
	if got.GetEventId() == list[0].GetEventId() {
		return true, nil
	}
	if got.GetRunSeq() <= last { // It is known, and the step waits nevertheless (PRJ-8, IDM-1).
		return false, &httpError{http.StatusConflict, "another writer has attested the step run before it waited, without effect: skip the step with SKIP_STEP"}
	}
	return false, nil
}
