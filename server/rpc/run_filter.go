package rpc

import (
	"fmt"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc/wire"
)

// Statuses returns the set of the statuses in a request; none means any.
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

// CheckTypes reports every fault of a filter of event types.
func CheckTypes(types []string) (bad Violations) {
	if n := len(types); n > wire.MaxTypes {
		bad.Add("types", fmt.Sprintf("are %d, at most %d", n, wire.MaxTypes))
		return bad
	}
	for _, name := range types {
		if fault := contract.StoredNameFault(name); fault != "" {
			bad.Add("types", "have "+contract.Quote(name)+", which "+fault)
		}
	}
	return bad
}

// CheckPlanVersion refuses the version of a plan that a request does not name.
func CheckPlanVersion(planID, version string) error {
	if version != "" && planID == "" {
		return Invalid("planVersion", "is set without planId; set both")
	}
	return nil
}
