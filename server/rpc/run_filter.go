package rpc

import (
	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
)

// Statuses returns the set of the statuses in a request; none stands for any.
func Statuses(list []runlogv1.RunStatus_Value) (set run.Statuses, err error) {
	for _, status := range list {
		_, known := runlogv1.RunStatus_Value_name[int32(status)]
		if !known || status == runlogv1.RunStatus_VALUE_UNSPECIFIED {
			return 0, Invalid("status", "is not a run status")
		}
		set |= run.StatusSet(run.Status(status))
	}
	return set, nil
}

// CheckPlanVersion refuses the version of a plan that a request does not name.
func CheckPlanVersion(planID, version string) error {
	if version != "" && planID == "" {
		return Invalid("planVersion", "is set without planId; set both")
	}
	return nil
}
