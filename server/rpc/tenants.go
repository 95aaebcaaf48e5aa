package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// Runs knows the tenants of runs.
type Runs interface {
	// TenantOf returns the tenant of a run, or *storage.RunNotFoundError.
	TenantOf(runID string) (string, error)
}

// errNoIdentity refuses a call that no interceptor has given an identity.
var errNoIdentity = &contract.Error{Reason: contract.ReasonUnauthenticated, Message: "the call has no identity; send a token"}

// CheckAppend refuses what the caller must not append: decisions, unless it has the role for them
// (SEC-9), and what CheckDecision refuses.
func CheckAppend(ctx context.Context, runs Runs, a *storage.Append) error {
	if err := checkDecisions(ctx, a); err != nil {
		return err
	}
	return CheckDecision(ctx, runs, a)
}

// checkDecisions refuses decisions of a caller that may not append them.
func checkDecisions(ctx context.Context, a *storage.Append) error {
	i := auth.From(ctx)
	if i == nil {
		return errNoIdentity
	}
	if i.May(deciders) {
		return nil
	}
	for n := range a.Events {
		if by := contract.DecidedBy(a.Events[n].Type); by != "" {
			return &contract.Error{
				Reason: contract.ReasonReservedEventType,
				Message: fmt.Sprintf("events[%d].eventType is %s, which is stored by %s alone; %s has not the role decider; nothing was stored",
					n, a.Events[n].Type, by, i.Name),
				Metadata: map[string]string{"run_id": a.RunID, "event_type": a.Events[n].Type, "call": by},
			}
		}
	}
	return nil
}

// deciders may append decisions that were made elsewhere.
var deciders = auth.RolesOf(runlogv1.Role_DECIDER)

// CheckDecision refuses events of a tenant that is not the caller's own, and any event of a run of
// another tenant, which is answered as if it did not exist (SEC-4). The calls that decide use it in
// place of CheckAppend: they write decisions.
//
// A run gets its tenant with its first event, and never changes it. Events without a tenant are
// refused with a *storage.UnscopedError if the run does not exist: another caller could make it
// before they are stored.
func CheckDecision(ctx context.Context, runs Runs, a *storage.Append) error {
	i := auth.From(ctx)
	if i == nil {
		return errNoIdentity
	}
	if i.Tenants.All && i.May(auth.RolesOf(runlogv1.Role_ADMIN)) {
		return nil
	}
	if err := checkReserved(i, a); err != nil || i.Tenants.All {
		return err
	}
	named := false // The request says which tenant a new run has.
	for n := range a.Events {
		e := &a.Events[n]
		if e.Absent&contract.AbsentTenant != 0 {
			continue
		}
		if !i.Sees(e.TenantID) {
			return foreignTenant(i, fmt.Sprintf("events[%d].tenantId", n), e.TenantID)
		}
		named = named || n == 0
	}
	if a.Create != nil {
		if named = true; !i.Sees(a.Create.Scope.TenantID) {
			return foreignTenant(i, "run.tenantId", a.Create.Scope.TenantID)
		}
	}
	owner, err := runs.TenantOf(a.RunID)
	var missing *storage.RunNotFoundError
	switch {
	case errors.As(err, &missing) && named:
		return nil
	case errors.As(err, &missing):
		return &storage.UnscopedError{RunID: a.RunID, Fields: []string{"tenantId"}}
	case err == nil && !i.Sees(owner):
		if named {
			return takenID(a.RunID)
		}
		return &storage.RunNotFoundError{RunID: a.RunID}
	}
	return err
}

// takenID refuses a call that would make a run whose id another tenant has: ids are those of the
// whole cluster. The reason is that of a run which does not exist, as for all other calls (SEC-4).
func takenID(runID string) error {
	return &contract.Error{Reason: contract.ReasonRunNotFound,
		Message:  fmt.Sprintf("run %q does not exist, and none of this tenant can have that id: choose another runId", runID),
		Metadata: map[string]string{"run_id": runID}}
}

// checkReserved refuses events in the name of the cluster: only its nodes and an admin append them.
func checkReserved(i *auth.Identity, a *storage.Append) error {
	reserved := strings.HasPrefix(a.RunID, AccessRuns) || a.Create != nil && a.Create.Scope.TenantID == AccessTenant ||
		namesTenant(a.Events, AccessTenant)
	if !reserved || i != nil && i.Name == AccessIdentity.Name {
		return nil
	}
	return &contract.Error{
		Reason: contract.ReasonPermissionDenied,
		Message: fmt.Sprintf("tenant %s and runs with names that begin with %s are those of the access log, which the nodes write; choose others",
			AccessTenant, AccessRuns),
	}
}

// CheckImport refuses to import in the name of the cluster: not even an admin may (SEC-12).
func CheckImport(ctx context.Context, a *storage.Append) error {
	if err := checkDecisions(ctx, a); err != nil {
		return err
	}
	return checkReserved(nil, a)
}

func namesTenant(events []contract.Event, tenant string) bool {
	for n := range events { // An event is too large to be copied.
		if events[n].TenantID == tenant {
			return true
		}
	}
	return false
}

// CheckProducer refuses to write to a tenant that the caller does not see (SEC-4).
func CheckProducer(ctx context.Context, field, tenant string) error {
	if i := auth.From(ctx); !i.Sees(tenant) {
		if i == nil {
			return errNoIdentity
		}
		return foreignTenant(i, field, tenant)
	}
	return nil
}

// CheckChange refuses to change a run of another tenant, and one that does not exist: it may get
// another tenant before the change is applied (SEC-4). A run never changes its tenant.
func CheckChange(ctx context.Context, node Reader, runID string) error {
	i := auth.From(ctx)
	if i != nil && i.Tenants.All {
		return nil
	}
	r, err := node.Store().Run(runID)
	if errors.As(err, new(*storage.RunNotFoundError)) { // It may not be applied here yet.
		if err = node.ReadIndex(ctx); err == nil {
			r, err = node.Store().Run(runID)
		}
	}
	if err == nil && !i.Sees(r.Scope.TenantID) {
		err = &storage.RunNotFoundError{RunID: runID}
	}
	return err
}

// Reader is a node of which the store is read.
type Reader interface {
	ReadIndex(context.Context) error
	Store() *storage.Store
}

func foreignTenant(i *auth.Identity, field, tenant string) error {
	return &contract.Error{
		Reason:   contract.ReasonPermissionDenied,
		Message:  fmt.Sprintf("%s is %s, and %s may not write to that tenant; ask an admin of the cluster", field, contract.Quote(tenant), i.Name),
		Metadata: map[string]string{"field": field},
	}
}

// RefusedAppend completes the refusal of an append. If the run has another tenant, it was made
// after CheckAppend, and the refusal would tell of it: it becomes that of a run that does not
// exist. If the caller has lost its lease, the refusal says which worker has the run now (QUE-8).
func RefusedAppend(ctx context.Context, store *storage.Store, runID string, err error) error {
	i := auth.From(ctx)
	if err == nil {
		return nil
	}
	if i == nil || !i.Tenants.All {
		run, missing := store.Run(runID)
		if missing == nil && !i.Sees(run.Scope.TenantID) {
			return &storage.RunNotFoundError{RunID: runID}
		}
	}
	return TellHolder(store, err)
}

// TellHolder adds to a LEASE_LOST which worker has the run now, and until when. The caller may see
// the run.
func TellHolder(store *storage.Store, err error) error {
	e := AsContract(err)
	if e == nil || e.Reason != contract.ReasonLeaseLost {
		return err
	}
	run, _, errRead := queue.ReadRun(store, e.Metadata["run_id"])
	if errRead != nil || run == nil || run.Worker == "" {
		return err
	}
	told := *e
	told.Metadata = maps.Clone(e.Metadata)
	told.Metadata["worker"] = run.Worker
	told.Message += fmt.Sprintf(" The run is %s, by worker %s", run.State, contract.Quote(run.Worker))
	if run.ExpiresAt != 0 {
		until := time.Unix(0, run.ExpiresAt).UTC().Format(time.RFC3339Nano)
		told.Metadata["lease_expire_time"] = until
		told.Message += " until " + until
	}
	told.Message += "."
	return &told
}

// CheckTenant refuses a tenant that the caller does not see, whether or not it has a run (SEC-4).
// Answers that the cluster signs need it: an empty one would say that the tenant has no events.
func CheckTenant(ctx context.Context, field, tenant string) error {
	if i := auth.From(ctx); !i.Sees(tenant) {
		return &contract.Error{
			Reason:   contract.ReasonPermissionDenied,
			Message:  fmt.Sprintf("%s is %s, and %s may not read that tenant; ask an admin of the cluster", field, contract.Quote(tenant), i.Name),
			Metadata: map[string]string{"field": field},
		}
	}
	return nil
}

// noTenant has no run: it is no name.
const noTenant = "\x00"

// ShownTenants returns the filter of a list of runs or events that asks for a tenant, or, with an
// empty name, for any: one tenant, or several. A tenant that the caller does not see is one that
// has no run (SEC-4). Both are empty for a caller that sees every tenant and asks for any.
func ShownTenants(ctx context.Context, asked string) (tenant string, among []string) {
	i := auth.From(ctx)
	switch {
	case asked != "" && i.Sees(asked), i != nil && i.Tenants.All:
		return asked, nil
	case asked != "" || i == nil || len(i.Tenants.Names) == 0:
		return noTenant, nil
	case len(i.Tenants.Names) == 1 && i.Tenants.Names[0] == "": // The filter would take it for any.
		return noTenant, nil
	case len(i.Tenants.Names) == 1:
		return i.Tenants.Names[0], nil
	default:
		return "", i.Tenants.Names
	}
}
