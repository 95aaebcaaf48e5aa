package rpc

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// MaxLabels is the highest number of labels of a run.
const MaxLabels = 64

const maxURI = 2048

// CheckRun reports every fault of the metadata that make a run. prefix is the path of the message
// in its request, such as "run.".
func CheckRun(prefix string, r *runlogv1.Run) (bad []contract.Violation) {
	check := func(field, value string, required bool, fault func(string) string) {
		text := ""
		switch {
		case value != "":
			text = fault(value)
		case required:
			text = "is required"
		}
		if text != "" {
			bad = append(bad, contract.Violation{Field: prefix + field, Reason: contract.ReasonInvalidArgumentField, Description: text})
		}
	}
	check("runId", r.RunId, true, contract.NameFault)
	check("tenantId", r.TenantId, true, contract.TenantFault)
	check("projectId", r.ProjectId, true, contract.ScopeFault)
	check("environmentId", r.EnvironmentId, true, contract.ScopeFault)
	check("planRef.planId", r.PlanRef.GetPlanId(), true, contract.NameFault)
	check("planRef.planVersion", r.PlanRef.GetPlanVersion(), true, contract.NameFault)
	check("planRef.uri", r.PlanRef.GetUri(), false, URIFault)
	check("planRef.sha256", r.PlanRef.GetSha256(), false, digestFault)
	check("planRef.schemaVersion", r.PlanRef.GetSchemaVersion(), false, contract.TextFault)
	check("planRef.compression", r.PlanRef.GetCompression(), false, contract.TextFault)
	check("planRef.expiresAt", r.PlanRef.GetExpiresAt(), false, timeFault)
	check("planRef.schemaEvolutionPath", r.PlanRef.GetSchemaEvolutionPath(), false, contract.TextFault)
	if h := r.PlanRef.GetMigrationHint(); h != nil {
		check("planRef.migrationHint.sourceVersion", h.SourceVersion, true, contract.TextFault)
		check("planRef.migrationHint.targetVersion", h.TargetVersion, true, contract.TextFault)
		check("planRef.migrationHint.transformScript", h.GetTransformScript(), false, URIFault)
	}
	check("engineType", r.GetEngineType(), false, contract.TextFault)
	check("engineRunRef", r.GetEngineRunRef(), false, URIFault)
	check("triggeredBy", r.GetTriggeredBy(), false, contract.TextFault)
	check("triggerSource", r.GetTriggerSource(), false, contract.TextFault)
	return append(bad, CheckLabels(prefix+"labels", r.Labels)...)
}

// CheckLabels reports every fault of labels.
func CheckLabels(field string, labels map[string]string) (bad []contract.Violation) {
	fail := func(field, text string) {
		if text != "" {
			bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: text})
		}
	}
	if len(labels) > MaxLabels {
		fail(field, fmt.Sprintf("has %d labels, at most %d", len(labels), MaxLabels))
		return bad
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if fault := contract.LabelFault(name); fault != "" {
			fail(field, "has the name "+contract.Quote(name)+", which "+fault)
			continue
		}
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

// timeFault describes what is wrong with a time; empty: nothing.
func timeFault(s string) string {
	if _, _, ok := jsontext.Time([]byte(s)); !ok || contract.TextFault(s) != "" {
		return "must be a time of RFC 3339, such as 2027-01-31T00:00:00Z"
	}
	return ""
}

// URIFault describes what is wrong with a URI; empty: nothing.
func URIFault(s string) string {
	switch {
	case len(s) > maxURI:
		return fmt.Sprintf("is %d bytes long: send at most %d", len(s), maxURI)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return "has a control character or is not UTF-8"
	default:
		return ""
	}
}

// Creation converts the metadata that make a run.
func Creation(r *runlogv1.Run) *storage.Creation {
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
			ExpiresAt: p.GetExpiresAt(), SchemaEvolutionPath: p.GetSchemaEvolutionPath(),
		}
		if h := p.MigrationHint; h != nil {
			c.Metadata.PlanRef.MigrationHint = &storage.MigrationHint{
				SourceVersion: h.SourceVersion, TargetVersion: h.TargetVersion, TransformScript: h.GetTransformScript(),
			}
		}
	}
	return c
}
