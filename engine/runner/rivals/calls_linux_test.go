package rivals

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	patience = 20 * time.Second
	// callPatience ends a read that waits for a position or an event that never comes.
	callPatience = time.Second
	// streamPatience ends a watch of what does not exist, which would wait for it.
	streamPatience = 200 * time.Millisecond
)

// patienceOf returns how long a call may take. What is no attack must succeed, however busy the
// machine is.
func patienceOf(kind string) time.Duration {
	if kind == "none" || kind == "planted" {
		return time.Hour
	}
	return patience
}

// methods returns every method of the API.
func methods() (all []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("runlog.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for k := range f.Services().Get(i).Methods().Len() {
				all = append(all, f.Services().Get(i).Methods().Get(k))
			}
		}
		return true
	})
	slices.SortFunc(all, func(x, y protoreflect.MethodDescriptor) int {
		return strings.Compare(string(x.FullName()), string(y.FullName()))
	})
	return all
}

// call calls a method about what the other tenant has, once with each token.
func (a *tenant) call(kind string, m protoreflect.MethodDescriptor) {
	for _, what := range []string{"writer", "reader", "worker"} {
		req := a.fill(kind, m.Input())
		a.w.counted(kind, a.invoke(kind, what, m, req))
	}
}

// invoke sends a request, and checks all that comes back. It returns what the answer is.
func (a *tenant) invoke(kind, what string, m protoreflect.MethodDescriptor, req proto.Message) string {
	limit := callPatience
	if m.IsStreamingServer() {
		limit = streamPatience
	} else if patienceOf(kind) > patience {
		limit = patienceOf(kind)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	look := func(answer proto.Message) {
		text, err := proto.Marshal(answer)
		if err != nil {
			a.w.t.Errorf("%s: %v", kind, err)
		}
		a.w.check.receives(a.name, kind, "answer", text)
	}
	sent, err := proto.Marshal(req)
	if err != nil {
		a.w.t.Errorf("%s: %v", kind, err)
	}
	a.w.check.sends(a.name, sent)
	path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	var header, trailer metadata.MD
	answered := "OK"
	if m.IsStreamingServer() || m.IsStreamingClient() {
		var stream grpc.ClientStream
		if stream, err = a.conns[what].NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, path); err == nil {
			if err = stream.SendMsg(req); err == nil && !m.IsStreamingClient() {
				err = stream.CloseSend()
			}
			for n := 0; err == nil && n < 50; n++ {
				answer := newMessage(m.Output())
				if err = stream.RecvMsg(answer); err == nil {
					look(answer)
				}
			}
			cancel()
			trailer = stream.Trailer()
		}
	} else {
		answer := newMessage(m.Output())
		if err = a.conns[what].Invoke(ctx, path, req, answer, grpc.Header(&header), grpc.Trailer(&trailer)); err == nil {
			look(answer)
		}
	}
	if err != nil && err.Error() != "EOF" {
		look(status.Convert(err).Proto())
		answered = reasonOf(err)
	}
	for _, md := range []metadata.MD{header, trailer} {
		for name, values := range md {
			a.w.check.receives(a.name, kind, "header "+name, []byte(strings.Join(values, " ")))
		}
	}
	return answered
}

func reasonOf(err error) string {
	s := status.Convert(err)
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return s.Code().String()
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // The generated code has each message.
	}
	return kind.New().Interface()
}

// fill makes a request out of what the tenant knows of the other one.
func (a *tenant) fill(kind string, d protoreflect.MessageDescriptor) proto.Message {
	m := newMessage(d)
	a.fillMessage(m.ProtoReflect(), 0)
	return m
}

// always lists the fields without which a request is refused before it is looked at.
var always = []string{
	"run_id", "tenant_id", "events", "requests", "run", "event_type", "plan_id", "plan_version", "emitted_at", "logical_attempt_id", "engine_attempt_id",
	"from", "to", "subscription_id", "delivery_ids", "filter", "delivery", "open", "ack", "pull", "which", "fence", "signal_id", "signal_type", "queue", "worker", "max",
	"step_id", "outcome", "attested_by", "project_id", "environment_id", "plan_ref", "run_request_id", "engine_run_ref", "settings", "limits", "name", "roles", "tenants", "token_id",
	"reason", "priority", "view",
}

func (a *tenant) fillMessage(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	chosen := map[protoreflect.OneofDescriptor]int{} // members
	for i := range fields.Len() {
		f := fields.Get(i)
		needed := slices.Contains(always, string(f.Name()))
		if one := f.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if _, drawn := chosen[one]; !drawn {
				chosen[one] = a.rng.IntN(one.Fields().Len())
				if f.Name() == "open" { // It is the first message of a stream.
					chosen[one] = 0
				}
			}
			if needed = one.Fields().Get(chosen[one]) == f; !needed {
				continue
			}
		}
		if depth > 5 || !needed && a.rng.IntN(10) < 8 || needed && a.rng.IntN(25) == 0 || f.Name() == "migration_hint" {
			continue
		}
		switch {
		case f.IsMap():
			if f.MapKey().Kind() == protoreflect.StringKind && f.MapValue().Kind() == protoreflect.StringKind {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString("owner").MapKey(), protoreflect.ValueOfString(a.name))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			if f.Message() != nil {
				a.fillMessage(list.AppendMutable().Message(), depth+1)
			} else {
				list.Append(a.value(f))
			}
		case f.Message() == nil:
			m.Set(f, a.value(f))
		default:
			a.fillKnown(m, f, depth)
		}
	}
	a.correct(m.Interface())
}

// correct changes a request that would be refused before it is looked at, or be about what the
// tenant itself has.
func (a *tenant) correct(m proto.Message) {
	switch m := m.(type) {
	case *runlogv1.EventWrite:
		m.RunId, m.IdempotencyKey = "", ""
		if !strings.HasPrefix(m.GetEventType(), "Step") {
			m.StepId = ""
		}
	case *runlogv1.ReleaseLeaseRequest:
		if m.Outcome != runlogv1.LeaseOutcome_STARTED {
			m.Events, m.EngineRunRef = nil, nil
		} else {
			m.Error, m.RetryAfter = "", nil
		}
	case *runlogv1.WatchRunsRequest:
		if m.View != runlogv1.WatchView_EVENT {
			m.Types, m.AfterPosition = nil, ""
		}
	case *runlogv1.LeaseRunsRequest:
		if m.Queue == "" { // Every queue of the tenant.
			m.Queue = a.text("queue")
		}
	}
}

// fillKnown fills a message. Those of Google have forms of their own.
func (a *tenant) fillKnown(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) {
	to := m.Mutable(f).Message()
	set := func(name string, n int64) {
		x := to.Descriptor().Fields().ByName(protoreflect.Name(name))
		if x.Kind() == protoreflect.Int32Kind {
			to.Set(x, protoreflect.ValueOfInt32(int32(n)))
			return
		}
		to.Set(x, protoreflect.ValueOfInt64(n))
	}
	switch f.Message().FullName() {
	case "google.protobuf.Timestamp":
		at := time.Now()
		if f.Name() == "from" {
			at = at.Add(-time.Hour)
		}
		set("seconds", at.Unix())
	case "google.protobuf.Duration":
		if set("nanos", 200_000_000); f.Name() != "wait" {
			set("seconds", 90)
		}
	case "google.protobuf.Struct", "google.protobuf.FieldMask":
		if f.Message().FullName() == "google.protobuf.FieldMask" {
			to.Mutable(to.Descriptor().Fields().ByName("paths")).List().Append(protoreflect.ValueOfString([]string{"labels", "engine_run_ref"}[a.rng.IntN(2)]))
		}
	default:
		a.fillMessage(to, depth+1)
	}
}

// value draws a value of a field.
func (a *tenant) value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(a.text(string(f.Name())))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(`{"outcome":"SUCCESS","artifacts":[]}`))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(a.rng.IntN(2) == 0)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(min(1+a.rng.IntN(values.Len()), values.Len()-1)).Number())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	}
	n := uint64(1 + a.rng.IntN(3))
	if stolen := a.loot[string(f.Name())]; len(stolen) > 0 {
		n, _ = strconv.ParseUint(stolen[0], 10, 64) // It is a number.
		n += uint64(a.rng.IntN(2)) * uint64(a.rng.IntN(3))
	}
	switch f.Kind() {
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(n)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(min(n, math.MaxUint32)))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(int32(min(n, math.MaxInt32)))
	default:
		return protoreflect.ValueOfInt64(int64(n))
	}
}

// text draws the text of a field.
func (a *tenant) text(name string) string {
	pick := func(list ...string) string { return list[a.rng.IntN(len(list))] }
	switch name {
	case "tenant_id", "tenants":
		if a.rng.IntN(8) == 0 {
			return pick("", "*", "runlog", strings.ToUpper(a.other.name), a.other.name+" ", a.name+","+a.other.name, a.other.name+"\u200b")
		}
		return pick(a.name, a.other.name)
	case "project_id":
		return project
	case "environment_id":
		return environment
	case "plan_version":
		return "1"
	case "schema_version":
		return "v1.2"
	case "types", "event_type":
		return pick("Noted", "StepStarted", "StepAttested", "SignalAccepted", "RunCompleted", "RunQueued", "RunStarted")
	case "signal_type":
		return pick("PAUSE", "RESUME", "CANCEL", "SKIP_STEP", "RETRY_STEP", "EMERGENCY_STOP")
	case "engine_type":
		return pick("runlog", "other")
	case "labels":
		return pick("owner="+a.name, "owner")
	case "url":
		return pick(a.other.sink.URL, a.sink.URL, "https://hooks.example/", "http://"+a.w.node.Server.Addresses().HTTP+"/v1/runs")
	case "reason", "error", "notes", "emitted_by", "request_id":
		return "reason"
	case "order_by":
		return pick("newest", "oldest")
	}
	if name == "attested_by" && a.rng.IntN(2) == 0 {
		return "token:" + a.names["writer"]
	}
	if stolen := a.loot[name]; len(stolen) > 0 {
		return pick(stolen...)
	}
	return ""
}
