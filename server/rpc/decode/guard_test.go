package decode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// service takes everything that the guard lets through and keeps it.
type service struct {
	runlogv1.UnimplementedEventServiceServer
	runlogv1.UnimplementedRunServiceServer
	got []proto.Message
}

func (s *service) AppendEvents(_ context.Context, r *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	s.got = append(s.got, r)
	return &runlogv1.AppendEventsResponse{}, nil
}

func (s *service) BatchAppend(_ context.Context, r *runlogv1.BatchAppendRequest) (*runlogv1.BatchAppendResponse, error) {
	s.got = append(s.got, r)
	return &runlogv1.BatchAppendResponse{}, nil
}

func (s *service) CreateRun(_ context.Context, r *runlogv1.CreateRunRequest) (*runlogv1.CreateRunResponse, error) {
	s.got = append(s.got, r)
	return &runlogv1.CreateRunResponse{}, nil
}

func (s *service) ReadEvents(r *runlogv1.ReadEventsRequest, _ grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
	s.got = append(s.got, r)
	return nil
}

// methods is a registrar that keeps the handlers of services, to call them without a connection.
type methods struct {
	unary   map[string]grpc.MethodHandler
	streams map[string]grpc.StreamHandler
}

func (m methods) RegisterService(desc *grpc.ServiceDesc, _ any) {
	for _, d := range desc.Methods {
		m.unary[d.MethodName] = d.Handler
	}
	for _, d := range desc.Streams {
		m.streams[d.StreamName] = d.Handler
	}
}

func encodeStatus(err error) error {
	var e *contract.Error
	if errors.As(err, &e) {
		return status.Error(e.Code(), e.Error())
	}
	return err
}

// unchecked ignores unknown fields.
func unchecked(string) Unknown { return nil }

func guarded(limits Limits) methods {
	m := methods{map[string]grpc.MethodHandler{}, map[string]grpc.StreamHandler{}}
	r := NewGuard(limits, encodeStatus).Register(m, unchecked)
	runlogv1.RegisterEventServiceServer(r, &service{})
	runlogv1.RegisterRunServiceServer(r, &service{})
	return m
}

var grpcCodec = codec{encoding.GetCodecV2(grpcproto.Name)}

// call sends bytes to a method as gRPC does.
func (m methods) call(ctx context.Context, s *service, method string, wire []byte) error {
	_, err := m.unary[method](s, ctx, func(v any) error {
		return grpcCodec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, v)
	}, nil)
	return err
}

// field is one that has a length.
func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

func repeated(number protowire.Number, content []byte, count int) []byte {
	return bytes.Repeat(field(number, content), count)
}

// structOf is a payload with one member, which is a list of count values.
func structOf(value []byte, count int) []byte {
	list := field(fieldValueList, repeated(fieldListValues, value, count))
	return field(fieldPayload, field(fieldStructFields, append(field(1, []byte("a")), field(fieldEntryValue, list)...)))
}

func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func TestFieldNumbers(t *testing.T) {
	for _, c := range []struct {
		message protoreflect.ProtoMessage
		name    protoreflect.Name
		number  protowire.Number
	}{
		{&runlogv1.AppendEventsRequest{}, "events", fieldEvents}, {&runlogv1.CreateRunRequest{}, "events", fieldEvents},
		{&runlogv1.ReleaseLeaseRequest{}, "events", fieldStart},
		{&runlogv1.AppendEventsRequest{}, "request_id", fieldRequestID}, {&runlogv1.BatchAppendRequest{}, "requests", fieldRequests},
		{&runlogv1.EventWrite{}, "payload", fieldPayload}, {&structpb.Struct{}, "fields", fieldStructFields},
		{&structpb.Value{}, "struct_value", fieldValueStruct}, {&structpb.Value{}, "list_value", fieldValueList}, {&structpb.ListValue{}, "values", fieldListValues},
	} {
		if fd := c.message.ProtoReflect().Descriptor().Fields().ByName(c.name); fd == nil || fd.Number() != c.number {
			t.Errorf("%T has %s as %v, not %d", c.message, c.name, fd, c.number)
		}
	}
}

// TestWireBombsAPP3: what is counted is refused in the validator's words, and before it is made.
func TestWireBombsAPP3(t *testing.T) {
	const size = 4 << 20
	limits := Limits{Bytes: size}
	for name, c := range map[string]struct {
		method string
		wire   []byte
		want   string
	}{
		"empty events":           {"AppendEvents", repeated(fieldEvents, nil, size/2), "INVALID_ARGUMENT_FIELD: events has 2097152 events: send 1 to 1000"},
		"one too many":           {"AppendEvents", repeated(fieldEvents, make([]byte, 100), 1001), "INVALID_ARGUMENT_FIELD: events has 1001 events: send 1 to 1000"},
		"events and then damage": {"AppendEvents", append(repeated(fieldEvents, nil, size/2-1), 0x12), "INVALID_ARGUMENT_FIELD: events has 2097151 events: send 1 to 1000"},
		"events of a new run":    {"CreateRun", repeated(fieldEvents, nil, size/2), "INVALID_ARGUMENT_FIELD: events has 2097152 events: send 1 to 1000"},
		"empty requests":         {"BatchAppend", repeated(fieldRequests, nil, size/2), "INVALID_ARGUMENT_FIELD: requests has 2097152 requests: send 1 to 1000"},
		"events of a batch":      {"BatchAppend", field(fieldRequests, repeated(fieldEvents, nil, size/2-10)), "INVALID_ARGUMENT_FIELD: requests have 2097142 events in all: send at most 10000"},
		"spread over a batch":    {"BatchAppend", repeated(fieldRequests, repeated(fieldEvents, make([]byte, 10), 11), 1000), "INVALID_ARGUMENT_FIELD: requests have 11000 events in all: send at most 10000"},
		"empty values":           {"AppendEvents", field(fieldEvents, structOf(nil, size/2-100)), "PAYLOAD_TOO_LARGE: the payloads of the request hold more than 262144 JSON values"},
		"values in values":       {"AppendEvents", field(fieldEvents, structOf(field(fieldValueStruct, field(fieldStructFields, nil)), size/8)), "PAYLOAD_TOO_LARGE: the payloads"},
		"deep values":            {"AppendEvents", field(fieldEvents, deepStruct(500, size/2)), "PAYLOAD_TOO_LARGE: the payloads"},
	} {
		t.Run(name, func(t *testing.T) {
			m, s := guarded(limits), &service{}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := m.call(t.Context(), s, c.method, c.wire)
			runtime.ReadMemStats(&after)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) || len(s.got) != 0 {
				t.Errorf("%v, want %s", err, c.want)
			}
			if made := after.TotalAlloc - before.TotalAlloc; made > 1<<20 {
				t.Errorf("%d bytes made", made)
			}
		})
	}
}

// deepStruct is a payload of so many levels, with so many bytes of empty values in the innermost.
func deepStruct(levels, size int) []byte {
	core := field(fieldValueList, repeated(fieldListValues, nil, size/2))
	length := len(core)
	open := func(number protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(length))
	}
	var heads [][]byte // from the inside out
	for level := range levels {
		entry := append(field(1, []byte("a")), open(fieldEntryValue)...)
		length += len(entry)
		fields := open(fieldStructFields)
		length += len(fields)
		outer := open(fieldValueStruct)
		if level == levels-1 {
			outer = open(fieldPayload)
		}
		length += len(outer)
		heads = append(heads, slices.Concat(outer, fields, entry))
	}
	slices.Reverse(heads)
	return append(slices.Concat(heads...), core...)
}

// TestGuardTakes: what is within the limits is as if there were no guard.
func TestGuardTakes(t *testing.T) {
	limits := Limits{Bytes: 4 << 20}
	for name, r := range map[string]struct {
		method string
		m      proto.Message
	}{
		"one":           {"AppendEvents", request(1, 100)},
		"as many":       {"AppendEvents", request(1000, 100)},
		"a full batch":  {"BatchAppend", &runlogv1.BatchAppendRequest{Requests: slices.Repeat([]*runlogv1.AppendEventsRequest{request(10, 10)}, 1000)}},
		"ten full":      {"BatchAppend", &runlogv1.BatchAppendRequest{Requests: slices.Repeat([]*runlogv1.AppendEventsRequest{request(1000, 10)}, 10)}},
		"a run":         {"CreateRun", &runlogv1.CreateRunRequest{Run: &runlogv1.Run{RunId: "r"}, Events: request(1000, 10).Events}},
		"empty":         {"AppendEvents", &runlogv1.AppendEventsRequest{}},
		"many elements": {"AppendEvents", &runlogv1.AppendEventsRequest{Events: []*runlogv1.EventWrite{{PayloadForm: &runlogv1.EventWrite_Payload{Payload: manyValues(t, 140_000)}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, s := guarded(limits), &service{}
			if err := m.call(t.Context(), s, r.method, wireOf(t, r.m)); err != nil || len(s.got) != 1 || !proto.Equal(s.got[0], r.m) {
				t.Errorf("%v, %d messages", err, len(s.got))
			}
		})
	}
}

func manyValues(t testing.TB, count int) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(map[string]any{"a": slices.Repeat([]any{true}, count)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request has so many events with a payload of so many bytes.
func request(events, payload int) *runlogv1.AppendEventsRequest {
	r := &runlogv1.AppendEventsRequest{RunId: "run_2026-02-11_abc123"}
	for i := range events {
		r.Events = append(r.Events, &runlogv1.EventWrite{
			EventType: "StepStarted", TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod", PlanId: "plan", PlanVersion: "1",
			StepId: fmt.Sprint("step-", i), LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: &timestamppb.Timestamp{Seconds: 1770805800, Nanos: 123456789},
			PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"pad":"` + strings.Repeat("x", payload) + `"}`)},
		})
	}
	return r
}

func TestMessagesTooLarge(t *testing.T) {
	m, s := guarded(Limits{Bytes: 1000}), &service{}
	wire := wireOf(t, request(1, 1000))
	err := m.call(t.Context(), s, "AppendEvents", wire)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "PAYLOAD_TOO_LARGE: the request has more than 1000 bytes") {
		t.Errorf("%v", err)
	}
	// The gateway has held the body to the limit, in which proto may take more room.
	inner := peer.NewContext(t.Context(), &peer.Peer{Addr: Gateway})
	if err := m.call(inner, s, "AppendEvents", wire); err != nil {
		t.Errorf("%v", err)
	}
	outer := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}})
	if err := m.call(outer, s, "AppendEvents", wire); err == nil {
		t.Error("a client is taken for the gateway")
	}
}

// TestUndecodableENV3: text that is not UTF-8 and messages that are damaged are the caller's fault,
// by field.
func TestUndecodableENV3(t *testing.T) {
	event := func(content ...byte) []byte { return field(fieldEvents, content) }
	for name, c := range map[string]struct {
		wire []byte
		want string
	}{
		"a text":          {slices.Concat(event(), event(field(9, []byte("a\xff"))...)), "events[1].stepId: is not valid UTF-8: encode all text as UTF-8"},
		"two texts":       {slices.Concat(event(field(9, []byte("a\xff"))...), field(1, []byte("\xc0\xaf"))), "events[0].stepId: is not valid UTF-8: encode all text as UTF-8\nrunId: is not valid UTF-8: encode all text as UTF-8"},
		"a payload":       {event(field(fieldPayload, field(1, field(1, []byte("\xff"))))...), "events[0].payload: is not well-formed protobuf, has text that is not valid UTF-8, or is nested too deep"},
		"a deep payload":  {event(deepStruct(5000, 2)...), "events[0].payload: is not well-formed protobuf, has text that is not valid UTF-8, or is nested too deep"},
		"cut off":         {[]byte{0x12, 5, 1}, "is not well-formed protobuf: it is cut off or damaged at byte 0 of 3"},
		"cut off inside":  {event(0x0a, 9, 'a'), "events[0]: is not well-formed protobuf: it is cut off or damaged at byte 0 of 3"},
		"text":            {[]byte("hello"), "is not well-formed protobuf: it is cut off or damaged at byte 2 of 5"},
		"a bad time":      {event(field(13, []byte{0xff})...), "events[0].emittedAt: is not well-formed protobuf, has text that is not valid UTF-8, or is nested too deep"},
		"field number 0":  {[]byte{0x02, 0}, "is not well-formed protobuf: it is cut off or damaged at byte 0 of 2"},
		"an open group":   {[]byte{0x0b}, "is not well-formed protobuf: it is cut off or damaged at byte 0 of 1"},
		"a varint of 11":  {append([]byte{0x18}, bytes.Repeat([]byte{0xff}, 11)...), "is not well-formed protobuf: it is cut off or damaged at byte 0 of 12"},
		"unpaired inside": {event(field(1, []byte("\xed\xa0\x80"))...), "events[0].eventId: is not valid UTF-8: encode all text as UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			f := frame{msg: &runlogv1.AppendEventsRequest{}}
			f.unmarshal(c.wire)
			if got := lines(f.fault); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestGuardedStreams: a stream learns what is wrong with a message, and whether it can continue.
func TestGuardedStreams(t *testing.T) {
	m := guarded(Limits{Bytes: 10_000})
	var s grpc.ServerStream
	err := m.streams["ReadEvents"](&service{}, &wireStream{ctx: t.Context(), wire: [][]byte{[]byte("hello")}, seen: &s})
	if st, ok := status.FromError(err); !ok || st.Code() != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
	messages := [][]byte{
		wireOf(t, request(1, 10)),
		append(repeated(fieldEvents, make([]byte, 100), 1001), field(fieldRequestID, []byte("many"))...),
		append(repeated(fieldEvents, make([]byte, 100), 1001), field(fieldRequestID, []byte("\xff"))...),
		wireOf(t, request(2, 10)),
		make([]byte, 200_001),
	}
	g := NewGuard(Limits{Bytes: 200_000}, encodeStatus)
	in := &guardedStream{ServerStream: &wireStream{ctx: t.Context(), wire: messages}, guard: g, frame: g.frame(t.Context(), nil)}
	for i, want := range []string{
		"ok 1", `true "many" INVALID_ARGUMENT_FIELD: events has 1001 events: send 1 to 1000`,
		`true "" INVALID_ARGUMENT_FIELD: events has 1001 events: send 1 to 1000`, "ok 2",
		`false "" PAYLOAD_TOO_LARGE: the request has more than 200000 bytes, the limit: send fewer events at a time, or keep large data elsewhere and send references to it`,
	} {
		var r runlogv1.AppendEventsRequest
		err, got := in.RecvMsg(&r), ""
		var refusal *Refusal
		switch {
		case err == nil:
			got = fmt.Sprint("ok ", len(r.Events))
		case errors.As(err, &refusal):
			got = fmt.Sprintf("%v %q %v", refusal.Readable, refusal.RequestID, refusal)
		}
		if got != want {
			t.Errorf("message %d: %s (%v), want %s", i, got, err, want)
		}
	}
	if err := in.RecvMsg(&runlogv1.AppendEventsRequest{}); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

// wireStream receives what it was given.
type wireStream struct {
	grpc.ServerStream
	ctx  context.Context
	wire [][]byte
	seen *grpc.ServerStream
}

func (s *wireStream) Context() context.Context { return s.ctx }

func (s *wireStream) RecvMsg(m any) error {
	if len(s.wire) == 0 {
		return io.EOF
	}
	wire := s.wire[0]
	s.wire = s.wire[1:]
	return grpcCodec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, m)
}

// TestInterceptorsSeeRefusals: a call that the guard refuses is measured as any other.
func TestInterceptorsSeeRefusals(t *testing.T) {
	m := guarded(Limits{Bytes: 10_000})
	var method string
	var seen error
	_, err := m.unary["AppendEvents"](&service{}, t.Context(), func(v any) error {
		return grpcCodec.Unmarshal(mem.BufferSlice{mem.SliceBuffer("hello")}, v)
	}, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		resp, err := next(ctx, req)
		method, seen = info.FullMethod, err
		return resp, err
	})
	if err == nil || !errors.Is(err, seen) || method != "/runlog.v1.EventService/AppendEvents" {
		t.Errorf("%v, interceptor: %s %v", err, method, seen)
	}
}

// BenchmarkGuard compares what gRPC does with a message by itself to what it does behind the guard.
func BenchmarkGuard(b *testing.B) {
	m := guarded(Limits{Bytes: 16 << 20})
	bare := methods{map[string]grpc.MethodHandler{}, map[string]grpc.StreamHandler{}}
	runlogv1.RegisterEventServiceServer(bare, &service{})
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{}})
	// Both go through the generated handler and an interceptor, as every call of a server does.
	interceptor := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(ctx, req)
	}
	for _, size := range []struct{ events, payload int }{{1, 200}, {10, 200}, {100, 500}, {1000, 4000}} {
		data := mem.BufferSlice{mem.SliceBuffer(wireOf(b, request(size.events, size.payload)))}
		receive := func(v any) error { return grpcCodec.Unmarshal(data, v) }
		for _, way := range []struct {
			name    string
			handler grpc.MethodHandler
		}{{"bare", bare.unary["AppendEvents"]}, {"guarded", m.unary["AppendEvents"]}} {
			b.Run(fmt.Sprintf("%dx%d/%s", size.events, size.payload, way.name), func(b *testing.B) {
				s := &discard{}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := way.handler(s, ctx, receive, interceptor); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkCheckWire is what counting adds to that.
func BenchmarkCheckWire(b *testing.B) {
	for _, size := range []struct{ events, payload int }{{1, 200}, {100, 500}, {1000, 400}, {1000, 3500}} {
		r := request(size.events, size.payload)
		wire := wireOf(b, r)
		b.Run(fmt.Sprintf("%dx%d", size.events, size.payload), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, fault := checkWire(r, wire); fault != nil {
					b.Fatal(fault)
				}
			}
		})
	}
	wire := wireOf(b, &runlogv1.AppendEventsRequest{Events: []*runlogv1.EventWrite{{PayloadForm: &runlogv1.EventWrite_Payload{Payload: manyValues(b, 200_000)}}}})
	b.Run("values", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, fault := checkWire(&runlogv1.AppendEventsRequest{}, wire); fault != nil {
				b.Fatal(fault)
			}
		}
	})
}

type discard struct {
	runlogv1.UnimplementedEventServiceServer
}

func (discard) AppendEvents(context.Context, *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	return nil, nil
}

// FuzzWire: the counts are no less than what the decoder makes, what it refuses has a fault with
// paths, and nothing else has.
func FuzzWire(f *testing.F) {
	f.Add(wireOf(f, request(2, 10)), uint8(0))
	f.Add(wireOf(f, &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{request(2, 10), request(1, 1)}}), uint8(1))
	f.Add(wireOf(f, &runlogv1.CreateRunRequest{Run: &runlogv1.Run{RunId: "r", Labels: map[string]string{"a": "b"}}, Events: request(1, 10).Events}), uint8(2))
	f.Add(field(fieldEvents, structOf(nil, 3)), uint8(0))
	f.Add(field(fieldEvents, structOf(field(fieldValueStruct, field(fieldStructFields, nil)), 3)), uint8(0))
	f.Add(field(fieldEvents, field(9, []byte("a\xff"))), uint8(0))
	f.Add([]byte("hello"), uint8(1))
	f.Fuzz(func(t *testing.T, wire []byte, which uint8) {
		m := []proto.Message{&runlogv1.AppendEventsRequest{}, &runlogv1.BatchAppendRequest{}, &runlogv1.CreateRunRequest{}}[which%3]
		fr := frame{msg: m}
		fr.unmarshal(bytes.Clone(wire))
		if err := proto.Unmarshal(wire, proto.Clone(m)); (err == nil) != (fr.fault == nil) && !fr.readable {
			t.Fatalf("decoder: %v, guard: %v", err, fr.fault)
		}
		if fr.fault != nil {
			checkFault(t, fr.fault)
			return
		}
		if kept := keepsUnknown(m.ProtoReflect()); kept && len(unknownFields(wire, m.ProtoReflect().Descriptor())) == 0 {
			t.Fatalf("%v has an unknown field that was not found", m)
		}
		var counted, made tally
		switch m := m.(type) {
		case *runlogv1.AppendEventsRequest:
			counted.request(wire, fieldEvents)
			made.add(m.Events)
		case *runlogv1.CreateRunRequest:
			counted.request(wire, fieldEvents)
			made.add(m.Events)
		case *runlogv1.BatchAppendRequest:
			for number, content := range lengthened(wire) {
				if number == fieldRequests {
					counted.request(content, fieldEvents)
				}
			}
			for _, r := range m.Requests {
				made.add(r.Events)
			}
		}
		if counted.events != made.events || counted.values < made.values {
			t.Fatalf("counted %+v, made %+v", counted, made)
		}
	})
}

// keepsUnknown reports whether the decoder has kept an unknown field.
func keepsUnknown(m protoreflect.Message) bool {
	kept := len(m.GetUnknown()) > 0
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				kept = kept || keepsUnknown(v.Message())
				return true
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				kept = kept || keepsUnknown(v.List().Get(i).Message())
			}
		default:
			kept = kept || keepsUnknown(v.Message())
		}
		return !kept
	})
	return kept
}

func (t *tally) add(events []*runlogv1.EventWrite) {
	t.events += len(events)
	for _, e := range events {
		t.addValue(structpb.NewStructValue(e.GetPayload()))
		t.values-- // The payload itself is no value of another.
	}
}

func (t *tally) addValue(v *structpb.Value) {
	t.values++
	for _, member := range v.GetStructValue().GetFields() {
		t.addValue(member)
	}
	for _, element := range v.GetListValue().GetValues() {
		t.addValue(element)
	}
}
