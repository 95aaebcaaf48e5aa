package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/storage/machine/tenant"
)

// The access log is a run of each day, which the nodes append to (SEC-7).
const (
	AccessTenant = tenant.Cluster   // that owns the runs
	AccessRuns   = "runlog.access/" // before the day in their names
)

// AccessIdentity appends the events of the access log.
var AccessIdentity = &auth.Identity{Name: "runlog", Tenants: auth.TenantsOf(AccessTenant), Roles: auth.RolesOf(runlogv1.Role_PRODUCER)}

// AccessLog records administrative and refused calls (SEC-7).
type AccessLog interface {
	// Allowed records an administrative call that is about to be made. After an error the call must
	// not be made.
	Allowed(context.Context, Call) error
	// Denied records a refused call.
	Denied(ctx context.Context, c Call, reason string, err error)
}

// Call is a call of a client.
type Call struct {
	Identity *auth.Identity // nil: the credentials were refused
	Address  string         // of the client
	Method   string         // full name
}

// As returns the context of a call that this node makes as an identity of its own. The answer to
// the call that it is about gets no header of it: a refused caller is not told which node leads.
func (a *Access) As(ctx context.Context, i *auth.Identity) context.Context {
	ctx = grpc.NewContextWithServerTransportStream(ctx, nil)
	return context.WithValue(auth.With(ctx, i), accessKey{}, a)
}

// logged returns the access log, for a call that it may have to name; nil: none.
func (c *Chain) logged() AccessLog {
	if a := c.opts.Access(); a != nil && c.opts.Caller == CallerClient {
		return a.Log
	}
	return nil
}

// recordAllowed records an administrative call before it is made (SEC-7).
func (c *Chain) recordAllowed(ctx context.Context, m *Method) error {
	log := c.logged()
	if log == nil || !m.administrative {
		return nil
	}
	return log.Allowed(ctx, callOf(ctx, m.name))
}

// recordDenied records a call that was refused for its caller (SEC-7).
func (c *Chain) recordDenied(ctx context.Context, m *Method, err error) {
	if log := c.logged(); log != nil {
		recordDenied(ctx, log, m.name, err)
	}
}

// RecordDeniedPart records a part of a call that was refused for its caller: a request of a batch
// or of a stream.
func RecordDeniedPart(ctx context.Context, method string, err error) {
	if a, _ := ctx.Value(accessKey{}).(*Access); a != nil && a.Log != nil && err != nil {
		recordDenied(ctx, a.Log, method, err)
	}
}

func recordDenied(ctx context.Context, log AccessLog, method string, err error) {
	var reason contract.Reason
	switch err = Status(err); status.Code(err) {
	case codes.Unauthenticated:
		reason = contract.ReasonUnauthenticated
	case codes.PermissionDenied:
		reason = contract.ReasonPermissionDenied
	default:
		return
	}
	log.Denied(ctx, callOf(ctx, method), string(reason), err)
}

func callOf(ctx context.Context, method string) Call {
	return Call{Identity: auth.From(ctx), Address: clientAddress(ctx), Method: method}
}
