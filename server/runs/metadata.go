package runs

import (
	"encoding/hex"
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
		return rpc.Invalid("run", "is required: name the run, its scope and its plan")
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
	check("run.planRef.uri", r.PlanRef.GetUri(), false, uriFault)
	check("run.planRef.sha256", r.PlanRef.GetSha256(), false, digestFault)
	check("run.planRef.schemaVersion", r.PlanRef.GetSchemaVersion(), false, contract.TextFault)
	check("run.planRef.compression", r.PlanRef.GetCompression(), false, contract.TextFault)
	check("run.engineType", r.GetEngineType(), false, contract.TextFault)
	check("run.engineRunRef", r.GetEngineRunRef(), false, uriFault)
	check("run.triggeredBy", r.GetTriggeredBy(), false, contract.TextFault)
	check("run.triggerSource", r.GetTriggerSource(), false, contract.TextFault)
	bad = append(bad, checkLabels("run.labels", r.Labels)...)
	if len(bad) == 0 {
		return nil
	}
	return contract.NewError(bad)
}

// checkLabels reports every fault of labels.
func checkLabels(field string, labels map[string]string) (bad []contract.Violation) {
	fail := func(field, text string) {
		if text != "" {
			bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: text})
		}
	}
	if len(labels) > maxLabels {
		fail(field, fmt.Sprintf("has %d labels, at most %d", len(labels), maxLabels))
		return bad
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name == "" {
			fail(field, "has a label without a name")
			continue
		}
		fail(field, contract.TextFault(name))
		fail(field+"["+contract.Quote(name)+"]", contract.TextFault(labels[name]))
	}
	return bad
}

// digestFault describes what is wrong with a SHA-256; empty: nothing.
func digestFault(s string) string {
	if _, err := hex.DecodeString(s); err != nil || len(s) != 64 {
		return "must be the 64 hexadecimal digits of a SHA-256"
	}
	return ""
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
