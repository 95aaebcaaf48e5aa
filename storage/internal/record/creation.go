package record

import (
	"maps"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
)

// Adopt returns the metadata of an existing run after CreateRun: unchanged if an earlier CreateRun
// said the same, or else what this one says, with what SetEngineRunRef and UpdateRun have said.
// conflicts are the fields that differ; then CreateRun is refused (APP-12).
func Adopt(have, create *recordv1.RunMetadata) (next *recordv1.RunMetadata, conflicts []string) {
	if have == nil {
		return create, nil
	}
	if have.Created {
		said := have
		if have.Said != nil {
			said = have.Said
		}
		return have, differing(said, create)
	}
	next = &recordv1.RunMetadata{
		PlanRef: create.PlanRef, EngineType: create.EngineType, EngineRunRef: create.EngineRunRef,
		TriggeredBy: create.TriggeredBy, TriggerSource: create.TriggerSource, Labels: create.Labels, Created: true,
		CreatedBy: create.CreatedBy,
	}
	if have.EngineRunRef != "" {
		if create.EngineRunRef != "" && create.EngineRunRef != have.EngineRunRef {
			conflicts = append(conflicts, "engineRunRef")
		}
		next.EngineRunRef = have.EngineRunRef
	}
	if len(have.Labels) > 0 {
		if len(create.Labels) > 0 && !maps.Equal(create.Labels, have.Labels) {
			conflicts = append(conflicts, "labels")
		}
		next.Labels = have.Labels
	}
	if len(differing(next, create)) > 0 {
		next.Said = create
	}
	return next, conflicts
}

// differing returns the names of the fields of CreateRun in which two differ. Its caller is none of
// them.
func differing(a, b *recordv1.RunMetadata) (fields []string) {
	differ := func(field string, differs bool) {
		if differs {
			fields = append(fields, field)
		}
	}
	p, q := a.GetPlanRef(), b.GetPlanRef()
	differ("planRef.uri", p.GetUri() != q.GetUri())
	differ("planRef.sha256", p.GetSha256() != q.GetSha256())
	differ("planRef.schemaVersion", p.GetSchemaVersion() != q.GetSchemaVersion())
	differ("planRef.planId", p.GetPlanId() != q.GetPlanId())
	differ("planRef.planVersion", p.GetPlanVersion() != q.GetPlanVersion())
	differ("planRef.sizeBytes", (p.GetSizeBytes() != q.GetSizeBytes()) || (p != nil && q != nil && (p.SizeBytes == nil) != (q.SizeBytes == nil)))
	differ("planRef.compression", p.GetCompression() != q.GetCompression())
	differ("planRef.expiresAt", p.GetExpiresAt() != q.GetExpiresAt())
	differ("planRef.schemaEvolutionPath", p.GetSchemaEvolutionPath() != q.GetSchemaEvolutionPath())
	differ("planRef.migrationHint", !proto.Equal(p.GetMigrationHint(), q.GetMigrationHint()))
	differ("engineType", a.EngineType != b.EngineType)
	differ("engineRunRef", a.EngineRunRef != b.EngineRunRef)
	differ("triggeredBy", a.TriggeredBy != b.TriggeredBy)
	differ("triggerSource", a.TriggerSource != b.TriggerSource)
	differ("labels", !maps.Equal(a.Labels, b.Labels))
	return fields
}
