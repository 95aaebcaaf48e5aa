package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

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
	// not be made. An emergency call is recorded at this node, if it cannot be appended.
	Allowed(context.Context, Call) error
	// Denied records a refused call.
	Denied(ctx context.Context, c Call, reason string, err error)
}

// Call is a call of a client.
type Call struct {
	Identity *auth.Identity // nil: the credentials were refused
	Address  string         // of the client
	Method   string         // full name
	Request  []RequestField // as the policy of the method says
	// Emergency: the call is made also if it cannot be recorded in the replicated log (SEC-13).
	Emergency bool
}

// RequestField is a field of a request, as the access log has it.
type RequestField struct {
	Name string // in JSON
	Text string // of a message: JSON
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
func (c *Chain) recordAllowed(ctx context.Context, m *Method, req any) error {
	log := c.logged()
	if log == nil || !m.administrative {
		return nil
	}
	call := callOf(ctx, m.name)
	call.Emergency = m.emergency
	var err error
	if call.Request, err = m.recordedOf(req); err != nil {
		return err
	}
	return log.Allowed(ctx, call)
}

// recordedOf returns the fields of a request that the access log has. An empty field is left out.
func (m *Method) recordedOf(req any) (fields []RequestField, err error) {
	for _, d := range m.recorded {
		message := req.(proto.Message).ProtoReflect()
		if !message.Has(d) {
			continue
		}
		field := RequestField{Name: d.JSONName()}
		if d.Message() == nil {
			field.Text = message.Get(d).String()
		} else if field.Text, err = jsonOf(message.Get(d).Message().Interface()); err != nil {
			return nil, fmt.Errorf("field %s for the access log: %w", field.Name, err)
		}
		fields = append(fields, field)
	}
	return fields, nil
}

// jsonOf returns a message as JSON without white space, of which protojson has a random amount.
func jsonOf(m proto.Message) (string, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return "", err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.String(), err
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
