package storagetest

import (
	"maps"
	"reflect"

	"runlog/storage"
	"runlog/storage/machine/metadata"
)

// ownMetadata copies metadata. No labels are nil.
func ownMetadata(md *storage.Metadata) *storage.Metadata {
	out := *md
	out.Labels = nil
	if len(md.Labels) > 0 {
		out.Labels = maps.Clone(md.Labels)
	}
	return &out
}

// refuseCreate: CreateRun is idempotent, or the first one of a run that came to be by appends
// (APP-12).
func refuseCreate(r *modelRun, a *storage.Append) error {
	var fields []string
	switch have := r.run.Metadata; {
	case a.Exclusive:
		return &storage.RunExistsError{RunID: a.RunID}
	case r.creation != nil:
		fields = differentFields(&r.creation.Metadata, &a.Create.Metadata)
	case have != nil:
		given := &a.Create.Metadata
		if have.EngineRunRef != "" && given.EngineRunRef != "" && have.EngineRunRef != given.EngineRunRef {
			fields = append(fields, "engineRunRef")
		}
		if len(have.Labels) > 0 && len(given.Labels) > 0 && !maps.Equal(have.Labels, given.Labels) {
			fields = append(fields, "labels")
		}
	}
	if fields != nil {
		return &storage.RunExistsError{RunID: a.RunID, Fields: fields}
	}
	return nil
}

func differentFields(a, b *storage.Metadata) (fields []string) {
	plan := func(md *storage.Metadata) storage.PlanRef {
		if md.PlanRef == nil {
			return storage.PlanRef{}
		}
		return *md.PlanRef
	}
	p, q := plan(a), plan(b)
	for _, f := range []struct {
		name string
		x, y any
	}{
		{"planRef.uri", p.URI, q.URI}, {"planRef.sha256", p.SHA256, q.SHA256}, {"planRef.schemaVersion", p.SchemaVersion, q.SchemaVersion},
		{"planRef.planId", p.PlanID, q.PlanID}, {"planRef.planVersion", p.PlanVersion, q.PlanVersion},
		{"planRef.sizeBytes", p.SizeBytes, q.SizeBytes}, {"planRef.compression", p.Compression, q.Compression},
		{"planRef.expiresAt", p.ExpiresAt, q.ExpiresAt}, {"planRef.schemaEvolutionPath", p.SchemaEvolutionPath, q.SchemaEvolutionPath},
		{"planRef.migrationHint", p.MigrationHint, q.MigrationHint},
		{"engineType", a.EngineType, b.EngineType}, {"engineRunRef", a.EngineRunRef, b.EngineRunRef},
		{"triggeredBy", a.TriggeredBy, b.TriggeredBy}, {"triggerSource", a.TriggerSource, b.TriggerSource},
		{"labels", ownMetadata(a).Labels, ownMetadata(b).Labels},
	} {
		if !reflect.DeepEqual(f.x, f.y) {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// adopt takes the metadata of the first CreateRun of a run that came to be by appends.
func (m *Model) adopt(r *modelRun, c *storage.Creation) {
	if r.creation != nil {
		return
	}
	r.creation = c
	next := ownMetadata(&c.Metadata)
	if have := r.run.Metadata; have != nil {
		if have.EngineRunRef != "" {
			next.EngineRunRef = have.EngineRunRef
		}
		if len(have.Labels) > 0 {
			next.Labels = have.Labels
		}
	}
	r.run.Metadata, r.run.MetadataChanged = next, !reflect.DeepEqual(next, ownMetadata(&c.Metadata))
	m.mark(r)
}

// metadataOf is that of a run, to be changed.
func metadataOf(r *modelRun) *storage.Metadata {
	if r.run.Metadata == nil {
		return &storage.Metadata{}
	}
	return ownMetadata(r.run.Metadata)
}

func (m *Model) setRef(s *SetRef, o *storage.Answer) {
	r := m.runs[s.RunID]
	if r == nil {
		o.Err = &storage.RunNotFoundError{RunID: s.RunID}
		return
	}
	if m.readsMeaning {
		o.LastSeq = r.run.LastSeq // an edge answers with the run
	}
	next := metadataOf(r)
	switch next.EngineRunRef {
	case s.Ref:
		return
	case "":
	default:
		o.Err = &storage.RunExistsError{RunID: s.RunID, Fields: []string{"engineRunRef"}}
		return
	}
	next.EngineRunRef = s.Ref
	r.run.Metadata, r.run.MetadataChanged = next, r.creation != nil
	m.mark(r)
}

func (m *Model) update(u *Update, o *storage.Answer) {
	r := m.runs[u.RunID]
	if r == nil {
		o.Err = &storage.RunNotFoundError{RunID: u.RunID}
		return
	}
	if m.readsMeaning {
		o.LastSeq = r.run.LastSeq
	}
	next, changed := metadataOf(r), false
	if ref := u.Update.EngineRunRef; ref != nil && *ref != next.EngineRunRef {
		if u.Update.Previous != next.EngineRunRef {
			o.Err = &metadata.PreviousError{RunID: u.RunID, Given: u.Update.Previous, Current: next.EngineRunRef}
			return
		}
		next.EngineRunRef, changed = *ref, true
	}
	if u.Update.Labels != nil && !maps.Equal(u.Update.Labels, next.Labels) {
		next.Labels, changed = u.Update.Labels, true
	}
	if changed {
		r.run.Metadata, r.run.MetadataChanged = ownMetadata(next), r.creation != nil
		m.mark(r)
	}
}
