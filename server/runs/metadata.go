package runs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/storage"
)

const (
	maxLabels = 64 // of a run
	maxURI    = 2048
)

// checkRun reports every fault of the metadata in CreateRun.
func checkRun(r *runlogv1.Run) error {
	if r == nil {
		return rpc.Invalid("run", "is required")
	}
	var bad []contract.Violation
	check := func(field, value string, required bool, fault func(string) string) {
		text := ""
		switch {
		case value != "":
			text = fault(value)
		case required:
			text = "is required"
		}
		if text != "" {
			bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: text})
		}
	}
	check("run.runId", r.RunId, true, contract.NameFault)
	check("run.tenantId", r.TenantId, true, contract.TextFault)
	check("run.projectId", r.ProjectId, true, contract.TextFault)
	check("run.environmentId", r.EnvironmentId, true, contract.TextFault)
	check("run.planRef.planId", r.PlanRef.GetPlanId(), true, contract.NameFault)
	check("run.planRef.planVersion", r.PlanRef.GetPlanVersion(), true, contract.NameFault)
	check("run.planRef.uri", r.PlanRef.GetUri(), true, uriFault)
	check("run.planRef.sha256", r.PlanRef.GetSha256(), true, contract.TextFault)
	check("run.planRef.schemaVersion", r.PlanRef.GetSchemaVersion(), true, contract.TextFault)
	check("run.planRef.compression", r.PlanRef.GetCompression(), false, contract.TextFault)
	check("run.engineType", r.GetEngineType(), false, contract.TextFault)
	check("run.engineRunRef", r.GetEngineRunRef(), false, uriFault)
	check("run.triggeredBy", r.GetTriggeredBy(), false, contract.TextFault)
	check("run.triggerSource", r.GetTriggerSource(), false, contract.TextFault)
	if len(r.Labels) > maxLabels {
		bad = append(bad, contract.Violation{Field: "run.labels", Reason: contract.ReasonInvalidArgumentField,
			Description: fmt.Sprintf("has %d labels, at most %d", len(r.Labels), maxLabels)})
	} else {
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			check("run.labels", name, true, contract.TextFault)
			check("run.labels["+contract.Quote(name)+"]", r.Labels[name], false, contract.TextFault)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return contract.NewError(bad)
}

func uriFault(s string) string {
	switch {
	case len(s) > maxURI:
		return fmt.Sprintf("is %d bytes long: send at most %d", len(s), maxURI)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return "has a control character or is not UTF-8"
	default:
		return ""
	}
}

func decodeCreation(r *runlogv1.Run) *storage.Creation {
	c := &storage.Creation{
		Scope: storage.Scope{TenantID: r.TenantId, ProjectID: r.ProjectId, EnvironmentID: r.EnvironmentId},
		Metadata: storage.Metadata{
			EngineType: r.GetEngineType(), EngineRunRef: r.GetEngineRunRef(),
			TriggeredBy: r.GetTriggeredBy(), TriggerSource: r.GetTriggerSource(), Labels: r.Labels,
		},
	}
	if p := r.PlanRef; p != nil {
		c.Metadata.PlanRef = &storage.PlanRef{
			URI: p.Uri, SHA256: p.Sha256, SchemaVersion: p.SchemaVersion,
			PlanID: p.PlanId, PlanVersion: p.PlanVersion, SizeBytes: p.SizeBytes, Compression: p.Compression,
		}
	}
	return c
}
