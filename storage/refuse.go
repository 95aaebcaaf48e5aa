package storage

import (
	"bytes"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
)

// refusal says why a request cannot be stored, whatever its events are; r is nil for a new run.
func refusal(r *run, m *appendCommand) error {
	if r == nil {
		return refuseNew(m)
	}
	if err := refuseScope(r.identity, &m.scope); err != nil {
		return err
	}
	if m.imports() && !r.identity.Imported {
		return &RunExistsError{RunID: r.identity.RunId, What: "origin: it was made here and not imported"}
	}
	if m.create != nil {
		return refuseCreate(r, m.create)
	}
	return nil
}

// unmet returns why the condition of a request does not hold. A request that stores nothing has no
// condition: a retry of one that was stored is answered as a duplicate (APP-4, QUE-8). The fence
// comes first, because a caller without the lease must not read again and retry.
func unmet(r *run, m *appendCommand, stores bool) error {
	switch {
	case !stores:
		return nil
	case m.fence != nil && *m.fence != r.head.fence:
		return &LeaseLostError{RunID: string(m.runID), Given: *m.fence, Current: r.head.fence}
	case m.expected != nil && *m.expected != r.head.lastSeq:
		return &SequenceError{RunID: string(m.runID), Expected: *m.expected, Last: r.head.lastSeq}
	default:
		return nil
	}
}

func refuseNew(m *appendCommand) error {
	var missing []string
	named := m.create != nil
	for _, f := range [...]struct {
		field string
		given []byte
		bit   contract.Absent
	}{
		{"tenantId", m.scope.tenant, contract.AbsentTenant},
		{"projectId", m.scope.project, contract.AbsentProject},
		{"environmentId", m.scope.environment, contract.AbsentEnvironment},
	} {
		if len(f.given) == 0 || !named && m.absent&f.bit != 0 {
			missing = append(missing, f.field)
		}
	}
	switch {
	case len(missing) > 0:
		return &UnscopedError{RunID: string(m.runID), Fields: missing}
	default:
		return nil
	}
}

func refuseScope(run *recordv1.RunIdentity, given *scopeText) error {
	for _, f := range [...]struct {
		field string
		given []byte
		want  string
	}{
		{"tenantId", given.tenant, run.Scope.GetTenantId()},
		{"projectId", given.project, run.Scope.GetProjectId()},
		{"environmentId", given.environment, run.Scope.GetEnvironmentId()},
	} {
		if len(f.given) > 0 && string(f.given) != f.want {
			return &ScopeError{RunID: run.RunId, Field: f.field, Index: -1, Given: string(f.given), Want: f.want}
		}
	}
	return nil
}

func refuseCreate(r *run, create *recordv1.RunMetadata) error {
	if r.metadata == nil || !bytes.Equal(r.metadata.CreateDigest, create.CreateDigest) {
		return &RunExistsError{RunID: r.identity.RunId, What: "metadata"}
	}
	return nil
}
