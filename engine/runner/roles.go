package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"runlog/client"
	"runlog/engine"
	runlogv1 "runlog/proto/runlog/v1"
)

// retryRoles is when a runner that lacks a role looks again.
const retryRoles = 5 * time.Second

// RolesError says which roles a runner needs and does not have.
type RolesError struct {
	// Name is that of the identity, Tenant that of the runner.
	Name, Tenant string
	Missing      []runlogv1.Role_Value
}

func (e *RolesError) Error() string {
	var names []string
	for _, role := range e.Missing {
		names = append(names, strings.ToLower(role.String()))
	}
	return fmt.Sprintf("runner: %q lacks the roles %s in the tenant %s: give it a token with the roles producer and reader there", e.Name,
		strings.Join(names, ", "), e.Tenant)
}

// Permitted asks the log for the roles of the runner, and returns a *RolesError if it could not
// execute a run.
func (r *Runner) Permitted(ctx context.Context) error {
	who, err := r.o.Client.WhoAmI(ctx)
	if err != nil {
		return err
	}
	elsewhere := !slices.Contains(who.GetTenants(), "*") && !slices.Contains(who.GetTenants(), r.o.Tenant)
	var missing []runlogv1.Role_Value
	for _, role := range []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER} {
		if elsewhere || !slices.Contains(who.GetRoles(), role) {
			missing = append(missing, role)
		}
	}
	if len(missing) > 0 {
		return &RolesError{who.GetName(), r.o.Tenant, missing}
	}
	return nil
}

// denied reports whether the log has refused a call for a role that the runner lacks.
func denied(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Reason == client.ReasonPermissionDenied
}

// leaser is the client of the Reconciler. It leases no runs while the runner is refused what it
// does with them: each lease would cost the run a start attempt.
type leaser struct {
	*client.Client
	r *Runner
}

// LeaseRuns leases runs, unless the runner lacks a role.
func (l leaser) LeaseRuns(ctx context.Context, req *runlogv1.LeaseRunsRequest) (*runlogv1.LeaseRunsResponse, error) {
	if l.r.refused.Load() > 0 {
		if err := l.r.Permitted(ctx); err != nil {
			return nil, err
		}
	}
	return l.Client.LeaseRuns(ctx, req)
}

// whilePermitted executes a run. If the log refuses a call of it for a role, the runner keeps the
// lease until it has the role again, or the lease is lost.
func (r *Runner) whilePermitted(ctx context.Context, req engine.StartRequest) error {
	err := r.execute(ctx, req)
	if !denied(err) {
		return err
	}
	r.refused.Add(1)
	defer r.refused.Add(-1)
	for denied(err) {
		r.o.Logger.ErrorContext(ctx, "the runner lacks a role and leases no runs; retrying", "run", req.Run.GetRunId(), "after", retryRoles,
			"roles", r.Permitted(ctx), "err", err)
		select {
		case <-time.After(retryRoles):
			err = r.execute(ctx, req)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}
