package decode

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestUnknownFieldsENV11: a field that the decoder does not know is found wherever it is, also
// where the decoder drops it.
func TestUnknownFieldsENV11(t *testing.T) {
	number := protowire.AppendVarint(protowire.AppendTag(nil, 9000, protowire.VarintType), 1)
	text := func(field protowire.Number) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), "x")
	}
	events := func(content ...[]byte) []byte { return field(fieldEvents, slices.Concat(content...)) }
	group := protowire.AppendTag(protowire.AppendTag(nil, 77, protowire.StartGroupType), 77, protowire.EndGroupType)
	for name, c := range map[string]struct {
		m    proto.Message
		wire []byte
		want []string
	}{
		"none":                 {&runlogv1.AppendEventsRequest{}, wireOf(t, request(2, 20)), nil},
		"of the request":       {&runlogv1.AppendEventsRequest{}, number, []string{"9000"}},
		"several":              {&runlogv1.AppendEventsRequest{}, slices.Concat(events(text(2)), events(number), group, text(1)), []string{"events[1].9000", "77"}},
		"another type":         {&runlogv1.AppendEventsRequest{}, events(text(10)), []string{"events[0].10"}},
		"of a time":            {&runlogv1.AppendEventsRequest{}, events(field(13, number)), []string{"events[0].emittedAt.9000"}},
		"of a payload":         {&runlogv1.AppendEventsRequest{}, events(field(fieldPayload, number)), []string{"events[0].payload.9000"}},
		"of a value":           {&runlogv1.AppendEventsRequest{}, events(field(fieldPayload, field(1, slices.Concat(text(1), field(2, number))))), []string{"events[0].payload.fields.value.9000"}},
		"of a label":           {&runlogv1.CreateRunRequest{}, field(1, field(10, slices.Concat(text(1), text(2), number))), []string{"run.labels.9000"}},
		"of a time in a batch": {&runlogv1.BatchAppendRequest{}, field(1, events(field(13, number))), []string{"requests[0].events[0].emittedAt.9000"}},
		"of a batch":           {&runlogv1.BatchAppendRequest{}, slices.Concat(field(1, nil), field(1, events(number))), []string{"requests[1].events[0].9000"}},
		"packed and unpacked":  {&runlogv1.CreateTokenRequest{}, slices.Concat(field(3, []byte{1, 2}), protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 1)), nil},
	} {
		f := frame{msg: c.m, unknown: contract.NewError}
		f.unmarshal(c.wire)
		var got []string
		if f.fault != nil {
			for _, v := range f.fault.Violations {
				got = append(got, v.Field)
			}
		}
		if !slices.Equal(got, c.want) || f.readable != (c.want != nil) {
			t.Errorf("%s: %v (readable: %v), want %q", name, f.fault, f.readable, c.want)
		}
		f = frame{msg: c.m.ProtoReflect().New().Interface()}
		if f.unmarshal(c.wire); f.fault != nil {
			t.Errorf("%s is refused of a read: %v", name, f.fault)
		}
	}
}

// TestMessagesOfBatchENV11: isKnown looks into each message that a batch may have.
func TestMessagesOfBatchENV11(t *testing.T) {
	var within []string
	for _, m := range []proto.Message{&runlogv1.BatchAppendRequest{}, &runlogv1.AppendEventsRequest{}, &runlogv1.EventWrite{}, &timestamppb.Timestamp{}} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if fields.Get(i).Message() != nil {
				within = append(within, string(fields.Get(i).Name()))
			}
		}
	}
	if want := []string{"requests", "events", "emitted_at", "payload"}; !slices.Equal(within, want) {
		t.Errorf("a batch has the messages %q, isKnown knows %q", within, want)
	}
	if plain := (&runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{request(2, 20)}}); !isKnown(plain) {
		t.Error("a batch without an unknown field is not known")
	}
}

// BenchmarkUnmarshal is the decoding of writes with the check for unknown fields and without.
func BenchmarkUnmarshal(b *testing.B) {
	one := request(1, 400)
	one.Events[0].EmittedAt = timestamppb.Now()
	structs := request(1, 20)
	structs.Events[0].PayloadForm = &runlogv1.EventWrite_Payload{Payload: &structpb.Struct{Fields: map[string]*structpb.Value{
		"a": structpb.NewStringValue("x"), "b": structpb.NewNumberValue(1), "c": structpb.NewBoolValue(true)}}}
	batch := &runlogv1.BatchAppendRequest{}
	for range 100 {
		batch.Requests = append(batch.Requests, one)
	}
	for _, c := range []struct {
		name string
		m    proto.Message
	}{{"append", one}, {"struct", structs}, {"batch of 100", batch}} {
		wire := wireOf(b, c.m)
		for name, unknown := range map[string]Unknown{"unchecked": nil, "checked": contract.NewError} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f := frame{msg: c.m.ProtoReflect().New().Interface(), unknown: unknown}
					if f.unmarshal(wire); f.fault != nil {
						b.Fatal(f.fault)
					}
				}
			})
		}
	}
}
