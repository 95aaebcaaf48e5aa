package signal

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) attestCommand() *cobra.Command {
	var (
		req       runlogv1.AttestStepRequest
		artifacts []string
		failed    bool
		attempt   uint32
	)
	cmd := &cobra.Command{
		Use:   "attest RUN STEP",
		Short: "Attest that a step which waits for it is done",
		Long: `Attest that a step which waits for its attestation is done, or has failed (--failed), which ends the run.
The attestation is an event of the run. It resumes nothing: runlog signal RUN RESUME does that.
If the contract of the step asks for several approvals, each but the last one is an approval, and the step
waits for other attesters. The event StepAttestationApproved has it: runlog events RUN shows them.

With access control, this needs the role attester, and those who have requested or started the run attest
none of its steps.`,
		Example: `  runlog attest run-1 B --notes "refreshed" --artifact model.xlsx=s3://acme/model.xlsx
  runlog attest run-1 B --failed --notes "the source is empty"`,
		Args: session.Arguments(2, 2, "the names of a run and of a step"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := session.RefuseEmpty(cmd.Flags(), "id", "by"); err != nil {
				return err
			}
			req.RunId, req.StepId, req.Outcome = args[0], args[1], runlogv1.AttestationOutcome_SUCCESS
			if failed {
				req.Outcome = runlogv1.AttestationOutcome_FAIL
			}
			if cmd.Flags().Changed("attempt") {
				req.LogicalAttemptId = &attempt
			}
			for _, text := range artifacts {
				name, uri, found := strings.Cut(text, "=")
				if !found || name == "" {
					return output.UsageError("--artifact %q is no NAME=URI, such as model.xlsx=s3://acme/model.xlsx", text)
				}
				req.Artifacts = append(req.Artifacts, &runlogv1.AttestedArtifact{Name: name, Uri: uri})
			}
			if req.AttestationId == "" {
				req.AttestationId = uuid.Must(uuid.NewV7()).String()
			}
			return a.WithClient(func(c *client.Client) error { return a.attest(cmd.Context(), c, &req) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&failed, "failed", false, "the step has failed: the run ends")
	f.StringVar(&req.Notes, "notes", "", "what was done, for people")
	f.StringArrayVar(&artifacts, "artifact", nil, "NAME=URI of what was made; may be repeated")
	f.StringVar(&req.AttestedBy, "by", "", "identity in whose name to attest (default: the caller)")
	f.Uint32Var(&attempt, "attempt", 0, "attempt of the step that was looked at (default: the current one)")
	f.StringVar(&req.AttestationId, "id", "", "id of the attestation; the same one for a retry (default: generated)")
	return cmd
}

// attestationLine is the JSON form of an attestation.
type attestationLine struct {
	AttestationID string `json:"attestationId"`
	Outcome       string `json:"outcome"`
	RunSeq        uint64 `json:"runSeq,string"`
	Attempt       uint32 `json:"logicalAttemptId"`
	Idempotent    bool   `json:"idempotent"`
	Position      string `json:"position"`
	Approvals     uint32 `json:"approvals,omitempty"`
	Needed        uint32 `json:"approvalsNeeded,omitempty"`
}

func (a *app) attest(ctx context.Context, c *client.Client, req *runlogv1.AttestStepRequest) error {
	resp, err := c.AttestStep(ctx, req)
	if err != nil {
		return withRetry(err, "attestation", req.AttestationId)
	}
	text := fmt.Sprintf("attempt %d of step %s is attested: %s at runSeq %d", resp.GetLogicalAttemptId(), req.StepId, req.Outcome, resp.GetRunSeq())
	if missing := int(resp.GetApprovalsNeeded()) - int(resp.GetApprovals()); missing > 0 {
		text = fmt.Sprintf("attempt %d of step %s is approved by %d of %d attesters at runSeq %d", resp.GetLogicalAttemptId(),
			req.StepId, resp.GetApprovals(), resp.GetApprovalsNeeded(), resp.GetRunSeq())
		if !resp.GetIdempotent() { // Others may have approved it since.
			text += ": it waits for " + output.Plural(missing, "other attester")
		}
	}
	if resp.GetIdempotent() {
		text += ", as it was before"
	}
	return a.Tell(text, attestationLine{req.AttestationId, req.Outcome.String(), resp.GetRunSeq(),
		resp.GetLogicalAttemptId(), resp.GetIdempotent(), resp.GetPosition(), resp.GetApprovals(), resp.GetApprovalsNeeded()})
}
