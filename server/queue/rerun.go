package queue

import (
	"fmt"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// checkRerun checks that a request of a run may rerun the run that it names, if it names one. A run
// of another scope is answered like one that does not exist (SEC-4).
func (s *Service) checkRerun(req *runlogv1.RequestRunRequest, runID string) error {
	if req.RerunOf == nil {
		return nil
	}
	// The same request again gets its run, though the other one may have been erased (QUE-2).
	if run, err := s.node.Store().Run(runID); err == nil && run.LastSeq > 0 {
		return nil
	}
	of, err := s.folded(*req.RerunOf)
	if err != nil {
		return err
	}
	if of.TenantId != req.TenantId || of.ProjectId != req.ProjectId || of.EnvironmentId != req.EnvironmentId {
		return &storage.RunNotFoundError{RunID: *req.RerunOf}
	}
	var bad violations
	if of.Status != runlogv1.RunStatus_FAILED && of.Status != runlogv1.RunStatus_CANCELLED {
		bad.Add("rerunOf", fmt.Sprintf("is %s: name a run that is FAILED or CANCELLED", of.Status))
	}
	has, want := req.PlanRef, of.PlanRef
	if has.GetPlanId() != want.GetPlanId() || has.GetPlanVersion() != want.GetPlanVersion() {
		bad.Add("planRef", fmt.Sprintf("is another plan than %s of run %s, whose outputs are of that plan: send the same",
			contract.Quote(want.GetPlanId()+"@"+want.GetPlanVersion()), contract.Quote(of.RunId)))
	}
	if has.GetSha256() != want.GetSha256() || has.GetSha256() == "" {
		bad.Add("planRef.sha256", fmt.Sprintf("is %q, and run %s has %q: a rerun needs the digest of the same plan",
			has.GetSha256(), contract.Quote(of.RunId), want.GetSha256()))
	}
	return bad.Err()
}
