package runner

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"runlog/client"
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
		add(x.SHA256 != "" && !isDigest(x.SHA256), at+"/sha256", "is not 64 digits of hex")
		add(x.Bytes != nil && *x.Bytes < 0, at+"/bytes", "is below 0")
	}
	if len(faults) > 0 {
		return &faultsError{faults}
	}
	return nil
}

// uriFault says why a text is no place of an artifact: a URI, or a file of a Windows share.
func uriFault(text string) string {
	u, err := url.Parse(text)
	isURI := err == nil && u.Scheme != ""
	if isShared := strings.HasPrefix(text, `\\`) && !strings.ContainsFunc(text, unicode.IsControl); !isURI && !isShared || len(text) > 2048 {
		return `is no URI of at most 2,048 bytes, such as s3://bucket/model.xlsx, and no path such as \\server\share\model.xlsx`
	}
	return ""
}

func isDigest(text string) bool {
	return len(text) == 64 && strings.Trim(strings.ToLower(text), "0123456789abcdef") == ""
}

// attest stores an attestation (ATT-4). It does not resume the run. After FAIL the run has failed.
// The log decides, by the credentials of the caller (SEC-10).
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
	_, s, err := a.load(ctx, c, runID)
	if err != nil {
		return 0, nil, err
	}
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
	resp, err := c.AttestStep(ctx, in.request(runID, step))
	if err != nil {
		return 0, nil, err
	}
	answer := map[string]any{"ok": true, "step_run_id": stepRunID, "new_status": in.Outcome}
	if needed := resp.GetApprovalsNeeded(); needed > 1 {
		answer["approvals"], answer["approvals_needed"] = resp.GetApprovals(), needed
		if resp.GetApprovals() < needed {
			answer["new_status"] = stepWord(replay.Waiting)
		}
	}
	return http.StatusOK, answer, nil
}

// request is the call that stores an attestation of a step.
func (in *attestation) request(runID string, step *replay.Step) *runlogv1.AttestStepRequest {
	req := &runlogv1.AttestStepRequest{
		RunId: runID, StepId: step.ID, LogicalAttemptId: &step.Attempt, AttestedBy: in.AttestedBy, Notes: in.Notes,
		AttestationId: uuid.NewString(), // Each call of the API is an attestation of its own.
		Outcome:       runlogv1.AttestationOutcome_Value(runlogv1.AttestationOutcome_Value_value[in.Outcome]),
	}
	for _, x := range in.Artifacts {
		made := &runlogv1.AttestedArtifact{Name: x.Name, Uri: x.URI, Sha256: strings.ToLower(x.SHA256)}
		if x.Bytes != nil {
			made.SizeBytes = proto.Uint64(uint64(*x.Bytes))
		}
		req.Artifacts = append(req.Artifacts, made)
	}
	return req
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
