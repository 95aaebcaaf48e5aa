package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
)

// GatewayFunc registers the HTTP routes of a service.
type GatewayFunc func(context.Context, *runtime.ServeMux, grpc.ClientConnInterface) error

// Gateway returns the routes of a service, from two functions that are generated for it.
func Gateway[Client any](client func(grpc.ClientConnInterface) Client,
	register func(context.Context, *runtime.ServeMux, Client) error) GatewayFunc {
	return func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
		return register(ctx, mux, client(conn))
	}
}

// Method is a row of the table of methods.
type Method struct {
	name  string
	roles auth.Roles
	every bool // The caller must have all tenants.
	// administrative: only an admin or an operator may call it, and it is recorded (SEC-7).
	administrative bool
	emergency      bool                           // The node's own access log is enough (SEC-13).
	recorded       []protoreflect.FieldDescriptor // of the request, in the access log
	answered       []protoreflect.FieldDescriptor // of the answer
	atLeader       bool
	watches        bool // A ticket for a watch is enough.
	toTheEnd       bool // The leader answers after its leadership has ended.
	writes         bool
	output         protoreflect.MessageType
}

// Methods is the table of methods, by full name (SEC-3).
type Methods map[string]*Method

// NewMethods reads the policies of services from their proto files. It fails for a method without a
// policy: any caller could use it.
func NewMethods(services []*Service) (Methods, error) {
	table := Methods{}
	for _, s := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(s.Desc.ServiceName))
		service, ok := d.(protoreflect.ServiceDescriptor)
		if err != nil || !ok {
			return nil, fmt.Errorf("server: service %s is not in any proto file: %w", s.Desc.ServiceName, err)
		}
		for i := range service.Methods().Len() {
			name, m, err := newMethod(service.Methods().Get(i))
			if err != nil {
				return nil, err
			}
			table[name] = m
		}
	}
	return table, nil
}

func newMethod(d protoreflect.MethodDescriptor) (string, *Method, error) {
	name := fmt.Sprintf("/%s/%s", d.Parent().FullName(), d.Name())
	policy, _ := proto.GetExtension(d.Options(), runlogv1.E_Policy).(*runlogv1.Policy)
	if fault := policyFault(d, policy); fault != "" {
		return "", nil, fmt.Errorf("server: method %s %s: add option (runlog.v1.policy) to its proto (proto/runlog/v1/options.proto)", name, fault)
	}
	output, err := protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName())
	if err != nil {
		return "", nil, fmt.Errorf("server: answer of method %s: %w", name, err)
	}
	by := policy.AnsweredBy
	return name, &Method{
		name: name, output: output, recorded: fieldsOf(d.Input(), policy.RecordedFields), answered: fieldsOf(d.Output(), policy.AnswerFields),
		roles: auth.RolesOf(policy.Roles...), every: policy.GetAllTenants(), toTheEnd: by == runlogv1.AnsweredBy_LEADER_TO_THE_END,
		atLeader: by != runlogv1.AnsweredBy_ANY_NODE, administrative: isAdministrative(policy), emergency: policy.Emergency,
		writes:  !reads(d),
		watches: d.IsStreamingServer() && strings.HasPrefix(string(d.Name()), "Watch"),
	}, nil
}

func fieldsOf(m protoreflect.MessageDescriptor, names []string) (list []protoreflect.FieldDescriptor) {
	for _, name := range names {
		list = append(list, m.Fields().ByName(protoreflect.Name(name)))
	}
	return list
}

// reads reports whether a method changes nothing. Its route is a GET, which is safe by RFC 9110, or
// its proto file says so. Every other method is a write, and refuses unknown fields.
func reads(d protoreflect.MethodDescriptor) bool {
	options, _ := d.Options().(*descriptorpb.MethodOptions)
	rule, _ := proto.GetExtension(options, annotations.E_Http).(*annotations.HttpRule)
	return rule.GetGet() != "" || options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

func isAdministrative(p *runlogv1.Policy) bool {
	return !p.Status && !auth.RolesOf(p.Roles...).Overlaps(everyday)
}

// everyday are the roles whose calls are not recorded one by one.
var everyday = auth.RolesOf(runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_AUDITOR, runlogv1.Role_ATTESTER,
	runlogv1.Role_DECIDER)

// policyFault describes what is wrong with the policy of a method; empty: nothing.
func policyFault(d protoreflect.MethodDescriptor, p *runlogv1.Policy) string {
	switch {
	case p == nil:
		return "has no policy"
	case len(p.Roles) == 0:
		return "has a policy without roles"
	case p.AnsweredBy == runlogv1.AnsweredBy_VALUE_UNSPECIFIED:
		return "has a policy that does not say which node answers"
	case p.AnsweredBy != runlogv1.AnsweredBy_ANY_NODE && (d.IsStreamingClient() || d.IsStreamingServer()):
		return "is a stream and has a policy that forwards it; streams are not forwarded"
	case p.Emergency && !isAdministrative(p):
		return "has a policy for emergencies, and is not recorded as an administrative call"
	case len(p.RecordedFields) > 0 && (!isAdministrative(p) && len(p.AnswerFields) == 0 || d.IsStreamingClient()):
		return "has a policy with recorded fields, and no single request that is recorded"
	case slices.Contains(fieldsOf(d.Input(), p.RecordedFields), nil):
		return fmt.Sprintf("has a policy that records fields %q, which are not all in %s", p.RecordedFields, d.Input().FullName())
	case slices.Contains(fieldsOf(d.Output(), p.AnswerFields), nil):
		return fmt.Sprintf("has a policy that records fields %q, which are not all in %s", p.AnswerFields, d.Output().FullName())
	}
	switch t := p.Tenant.(type) {
	case *runlogv1.Policy_TenantField:
		return pathFault(d.Input(), t.TenantField)
	case *runlogv1.Policy_RunField:
		return pathFault(d.Input(), t.RunField)
	case *runlogv1.Policy_WholeCluster, *runlogv1.Policy_AllTenants:
		return ""
	default:
		return "has a policy that does not say where the tenant is"
	}
}

// pathFault describes why a path of fields does not lead to a string; empty: it does.
func pathFault(m protoreflect.MessageDescriptor, path string) string {
	first, rest, more := strings.Cut(path, ".")
	f := m.Fields().ByName(protoreflect.Name(first))
	switch {
	case f == nil:
		return fmt.Sprintf("has a policy with field %q, which %s does not have", first, m.FullName())
	case more && f.Message() != nil:
		return pathFault(f.Message(), rest)
	case more || f.Kind() != protoreflect.StringKind:
		return fmt.Sprintf("has a policy with field %q of %s, which is not a string", first, m.FullName())
	default:
		return ""
	}
}
