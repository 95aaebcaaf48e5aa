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
	"google.golang.org/protobuf/reflect/protoreflect"

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
	// Done records a call that has succeeded. After an error the answer of a query or an export
	// must not leave.
	Done(context.Context, Call) error
	// Denied records a refused call.
	Denied(ctx context.Context, c Call, reason string, err error)
}

// Call is a call of a client.
type Call struct {
	Identity *auth.Identity  // nil: the credentials were refused
	Address  string          // of the client
	Method   string          // full name
	Request  []RecordedField // as the policy of the method says
	Answer   []RecordedField // likewise
	// Emergency: the call is made also if it cannot be recorded in the replicated log (SEC-13).
	Emergency bool
}

// RecordedField is a field of a request or an answer, as the access log has it.
type RecordedField struct {
	Name string // in JSON
	Text string // of what is no text: JSON
}

// As returns the context of a call that this node makes as an identity of its own. The answer to
// the call that it is about gets no header of it: a refused caller does not learn which node leads.
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

// recordAllowed records an administrative call before it is made (SEC-7). A stream whose request is
// recorded comes here again, with the request.
func (c *Chain) recordAllowed(ctx context.Context, m *Method, req any) error {
	log := c.logged()
	if log == nil || !m.administrative || req == nil && len(m.recorded) > 0 {
		return nil
	}
	call := callOf(ctx, m.name)
	call.Emergency = m.emergency
	var err error
	if call.Request, err = recordedOf(req, m.recorded); err != nil {
		return err
	}
	return log.Allowed(ctx, call)
}

// recordDone records a call that has succeeded, before its answer leaves. A call that was recorded
// before it was made gets its answer in any case: it may tell a secret that cannot be asked for
// again.
func (c *Chain) recordDone(ctx context.Context, m *Method, req, answer any) error {
	log := c.logged()
	if log == nil || len(m.answered) == 0 {
		return nil
	}
	call := callOf(ctx, m.name)
	var err error
	if call.Request, err = recordedOf(req, m.recorded); err == nil {
		call.Answer, err = recordedOf(answer, m.answered)
	}
	if err == nil {
		err = log.Done(ctx, call)
	}
	if m.administrative {
		return nil
	}
	return err
}

// recordedOf returns the fields of a message that the access log has. An empty field is left out.
func recordedOf(of any, list []protoreflect.FieldDescriptor) (fields []RecordedField, err error) {
	if of == nil || len(list) == 0 {
		return nil, nil
	}
	message := of.(proto.Message).ProtoReflect()
	only := message.New()
	for _, d := range list {
		if message.Has(d) {
			only.Set(d, message.Get(d))
		}
	}
	var values map[string]json.RawMessage
	text, err := protojson.Marshal(only.Interface())
	if err == nil {
		err = json.Unmarshal(text, &values)
	}
	for _, d := range list {
		raw, ok := values[d.JSONName()]
		if !ok || err != nil {
			continue
		}
		field := RecordedField{Name: d.JSONName()}
		if json.Unmarshal(raw, &field.Text) != nil {
			var compact bytes.Buffer // protojson has a random amount of white space.
			err = json.Compact(&compact, raw)
			field.Text = compact.String()
		}
		fields = append(fields, field)
	}
	if err != nil {
		return nil, fmt.Errorf("fields for the access log: %w", err)
	}
	return fields, nil
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

// RecordDone records what a call of the admin listener has done.
func RecordDone(ctx context.Context, method string, request ...RecordedField) {
	if a, _ := ctx.Value(accessKey{}).(*Access); a != nil && a.Log != nil {
		call := callOf(ctx, method)
		call.Request = request
		_ = a.Log.Done(ctx, call) // The log has the call from before.
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
