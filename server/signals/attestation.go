package signals

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
)

const (
	maxAttestedArtifacts = 1000
	maxURIBytes          = 2048
	maxNotesBytes        = 16 << 10
)

// outcomeFail is the outcome that ends the run.
var outcomeFail = runlogv1.AttestationOutcome_FAIL.String()

// attestation is a request that was checked, and what is known of its caller and its run.
type attestation struct {
	runID, stepID, attestedBy string
	asked                     *uint32 // the attempt; nil: the current one
	said                      saying  // without AttestedAt and Contract
	caller                    *auth.Identity
	past                      past
}

// saying is the payload of StepAttested.
type saying struct {
	Outcome    string             `json:"outcome"`
	AttestedBy string             `json:"attestedBy"`
	AttestedAt string             `json:"attestedAt,omitempty"`
	Notes      string             `json:"notes,omitempty"`
	Artifacts  []attestedArtifact `json:"artifacts,omitempty"`
	ID         string             `json:"attestationId,omitempty"`
	// Approvals is how many attesters have approved the attempt, with this one, and Needed how many
	// its contract asks for. Approvers are all of them, once they are enough. Where one is enough,
	// none of them is said.
	Approvals int      `json:"approvals,omitempty"`
	Needed    int      `json:"approvalsNeeded,omitempty"`
	Approvers []string `json:"approvers,omitempty"`
	// Contract is a copy of that of the wait.
	Contract json.RawMessage `json:"contract,omitempty"`
}

type attestedArtifact struct {
	Name   string  `json:"name"`
	URI    string  `json:"uri"`
	SHA256 string  `json:"sha256,omitempty"`
	Bytes  *uint64 `json:"bytes,omitempty"`
}

// attestationField turns the path of a member of the payload into that of the field of the request.
var attestationField = strings.NewReplacer("payload/", "")

// checkAttestation validates a request, and returns all of its violations. An attestation in the
// name of another identity needs the right to act for it (SEC-10).
func checkAttestation(ctx context.Context, req *runlogv1.AttestStepRequest) (*attestation, error) {
	a := &attestation{runID: req.RunId, stepID: req.StepId, attestedBy: req.AttestedBy, asked: req.LogicalAttemptId, caller: auth.From(ctx)}
	var bad []contract.Violation
	fail := func(field, fault string) {
		if fault != "" {
			bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fault})
		}
	}
	fail("runId", contract.NameFault(req.RunId))
	fail("stepId", contract.StepFault(req.StepId))
	if req.LogicalAttemptId != nil && *req.LogicalAttemptId == 0 {
		fail("logicalAttemptId", "is 0: attempts begin with 1; leave it out for the current one")
	}
	if req.Outcome != runlogv1.AttestationOutcome_SUCCESS && req.Outcome != runlogv1.AttestationOutcome_FAIL {
		fail("outcome", "is required: send SUCCESS or FAIL")
	}
	if a.attestedBy == "" && a.caller != nil {
		a.attestedBy = a.caller.Name
	} else if a.caller == nil || a.attestedBy != a.caller.Name {
		fail("attestedBy", auth.IdentityFault(a.attestedBy))
	}
	fail("attestationId", contract.TextFault(req.AttestationId))
	fail("notes", textFault(req.Notes, maxNotesBytes))
	if len(req.Artifacts) > maxAttestedArtifacts {
		fail("artifacts", fmt.Sprintf("has %d elements, at most %d", len(req.Artifacts), maxAttestedArtifacts))
	}
	a.said = saying{Outcome: req.Outcome.String(), AttestedBy: a.attestedBy, Notes: req.Notes, ID: req.AttestationId}
	for i, x := range req.Artifacts {
		at := fmt.Sprintf("artifacts[%d].", i)
		if fail(at+"name", contract.TextFault(x.Name)); x.Name == "" {
			fail(at+"name", "is required")
		}
		fail(at+"uri", uriFault(x.Uri))
		if x.Sha256 != "" && (len(x.Sha256) != 64 || strings.Trim(x.Sha256, "0123456789abcdef") != "") {
			fail(at+"sha256", "is not 64 digits of lower-case hex")
		}
		a.said.Artifacts = append(a.said.Artifacts, attestedArtifact{x.Name, x.Uri, x.Sha256, x.SizeBytes})
	}
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	if !a.caller.MayActFor(a.attestedBy) {
		return nil, &contract.Error{Reason: contract.ReasonPermissionDenied,
			Message: fmt.Sprintf("attestedBy is %s, and %s may attest in its own name alone; ask an admin for a credential that may act for it",
				contract.Quote(a.attestedBy), contract.Quote(a.caller.Name)),
			Metadata: map[string]string{"run_id": a.runID, "step_id": a.stepID, "field": "attestedBy"}}
	}
	return a, nil
}

// uriFault says why a text is neither an absolute URI nor a file of a Windows share (UNC); empty:
// it is one of them.
func uriFault(text string) string {
	u, err := url.Parse(text)
	isURI := err == nil && u.Scheme != ""
	if isShared := strings.HasPrefix(text, `\\`) && !strings.ContainsFunc(text, unicode.IsControl); !isURI && !isShared || len(text) > maxURIBytes {
		return fmt.Sprintf(`is no URI of at most %d bytes, such as s3://bucket/model.xlsx, and no path such as \\server\share\model.xlsx`, maxURIBytes)
	}
	return ""
}
