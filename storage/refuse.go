package storage

import (
	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/record"
)

// refusal says why a request cannot be stored, whatever its events are; r is nil for a new run.
func refusal(r *run, m *record.AppendCommand) error {
	if r == nil {
		return m.RefuseNew()
	}
	if err := refuseScope(r.identity, &m.Scope); err != nil {
		return err
	}
	if m.Imports() && !r.identity.Imported {
		return &RunExistsError{RunID: r.identity.RunId, Native: true}
	}
	if m.Create == nil {
		return nil
	}
	if m.Exclusive {
		return &RunExistsError{RunID: r.identity.RunId}
	}
	if _, conflicts := record.Adopt(r.metadata, m.Create); len(conflicts) > 0 {
		return &RunExistsError{RunID: r.identity.RunId, Fields: conflicts}
	}
	return nil
}

// refuseNewEvent says why CreateRun of an existing run cannot be stored: it has a new event
// (APP-12).
func refuseNewEvent(r *run, results []EventResult) error {
	for i := range results {
		if !results[i].Duplicate {
			return &RunExistsError{RunID: r.identity.RunId, NewEvent: i + 1}
		}
	}
	return nil
}

// unmet returns why the conditions of a request do not hold. stores: it makes the run, or has a new
// event. A request that stores nothing has no conditions, because it repeats one that was stored,
// and gets the answer of that one (APP-4, QUE-8). If its events must be new (OnlyNew), all
// conditions are checked also when an event is a duplicate.
//
// The fence comes first, because a caller without the lease must not read again and retry. The keys
// come last, so that the answer about them is true of the run that the caller has read.
func unmet(r *run, m *record.AppendCommand, stores bool, results []EventResult) error {
	taken := takenKey(m, results)
	switch {
	case !stores && taken == nil:
		return nil
	case m.Fence != nil && *m.Fence != r.head.Fence:
		return &LeaseLostError{RunID: string(m.RunID), Given: *m.Fence, Current: r.head.Fence}
	case m.Expected != nil && *m.Expected != r.head.LastSeq:
		return &SequenceError{RunID: string(m.RunID), Expected: *m.Expected, Last: r.head.LastSeq}
	default:
		return taken
	}
}

// takenKey returns a *KeyTakenError of the first event that must be new and is not.
func takenKey(m *record.AppendCommand, results []EventResult) error {
	for i := range results {
		if m.OnlyNew && results[i].Duplicate {
			h := record.ParseHeader(m.Headers[i*record.HeaderSize:])
			return &KeyTakenError{RunID: string(m.RunID), Index: i, Key: h.Key, RunSeq: results[i].RunSeq}
		}
	}
	return nil
}

func refuseScope(run *recordv1.RunIdentity, given *record.ScopeText) error {
	for _, f := range [...]struct {
		field string
		given []byte
		want  string
	}{
		{"tenantId", given.Tenant, run.Scope.GetTenantId()},
		{"projectId", given.Project, run.Scope.GetProjectId()},
		{"environmentId", given.Environment, run.Scope.GetEnvironmentId()},
	} {
		if len(f.given) > 0 && string(f.given) != f.want {
			return &ScopeError{RunID: run.RunId, Field: f.field, Index: -1, Given: string(f.given), Want: f.want}
		}
	}
	return nil
}
