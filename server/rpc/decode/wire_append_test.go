package decode

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"runlog/proto/contract/contracttest"
	runlogv1 "runlog/proto/runlog/v1"
)

// failer is a testing.TB or a rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// agrees reports whether readAppend decoded a message. If so, it compares the result with that of
// proto.Unmarshal, and writes over the message, which the result must not share.
func agrees(t failer, wire []byte) bool {
	t.Helper()
	own := bytes.Clone(wire)
	var got, want runlogv1.AppendEventsRequest
	if !readAppend(own, &got) {
		return false
	}
	for i := range own {
		own[i] = 0xff
	}
	if err := proto.Unmarshal(wire, &want); err != nil {
		t.Fatalf("%x is decoded as %v, and by protobuf: %v", wire, &got, err)
	}
	if !proto.Equal(&got, &want) {
		t.Fatalf("%x is decoded as\n%v, and by protobuf as\n%v", wire, &got, &want)
	}
	return true
}

func drawRequest(t *rapid.T) *runlogv1.AppendEventsRequest {
	text := rapid.StringN(0, 5, 200)
	m := &runlogv1.AppendEventsRequest{RunId: text.Draw(t, "run"), RequestId: text.Draw(t, "request")}
	if rapid.Bool().Draw(t, "expects") {
		m.ExpectedLastSeq = proto.Uint64(rapid.Uint64().Draw(t, "expected"))
	}
	if rapid.Bool().Draw(t, "fenced") {
		m.Fence = proto.Uint64(rapid.Uint64().Draw(t, "fence"))
	}
	for range rapid.IntRange(0, 5).Draw(t, "events") {
		e := &runlogv1.EventWrite{}
		contracttest.DrawMessage(t, e, text, rapid.SliceOf(rapid.Byte()))
		m.Events = append(m.Events, e)
	}
	return m
}

// TestAppendIsReadAsByProtobuf holds the decoder of appends to the generated one: it decodes every
// request that a client usually sends, and agrees about what others it decodes.
func TestAppendIsReadAsByProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wire, err := proto.Marshal(drawRequest(t))
		if err != nil {
			t.Fatal(err)
		}
		if !agrees(t, wire) {
			t.Fatalf("%x is left to protobuf", wire)
		}
		if len(wire) == 0 {
			return
		}
		at := rapid.IntRange(0, len(wire)-1).Draw(t, "at")
		changed := bytes.Clone(wire)
		changed[at] = rapid.Byte().Draw(t, "byte")
		agrees(t, changed)
		agrees(t, wire[:at])
		agrees(t, slices.Concat(wire, wire[at:]))
	})
}

// TestAppendsLeftToProtobuf shows which requests the decoder of appends does not decode.
func TestAppendsLeftToProtobuf(t *testing.T) {
	number := func(field protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), 7)
	}
	event := func(body []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, fieldEvents, protowire.BytesType), body)
	}
	at := protowire.AppendBytes(protowire.AppendTag(nil, 13, protowire.BytesType), number(1))
	for name, wire := range map[string][]byte{
		"unknown field":             number(77),
		"unknown field of an event": event(number(77)),
		"text as a number":          number(1),
		"a group":                   protowire.AppendTag(nil, 9, protowire.StartGroupType),
		"field zero":                {0, 0},
		"two times":                 event(slices.Concat(at, at)),
		"not UTF-8":                 event(protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "\xff")),
		"cut off":                   {0x0a, 5, 'r'},
		"payload as a struct":       wireOf(t, &runlogv1.AppendEventsRequest{Events: []*runlogv1.EventWrite{{PayloadForm: &runlogv1.EventWrite_Payload{Payload: &structpb.Struct{}}}}}),
	} {
		if agrees(t, wire) {
			t.Errorf("%s: %x was decoded", name, wire)
		}
	}
}

func FuzzReadAppend(f *testing.F) {
	f.Add(wireOf(f, request(2, 20)))
	f.Add([]byte{0x0a, 1, 'r', 0x18, 7, 0x28, 0x80, 0})
	f.Fuzz(func(t *testing.T, wire []byte) { agrees(t, wire) })
}

// BenchmarkReadAppend compares the decoder of appends with that of protobuf.
func BenchmarkReadAppend(b *testing.B) {
	for _, events := range []int{1, 100} {
		wire := wireOf(b, request(events, 400))
		for name, read := range map[string]func(*runlogv1.AppendEventsRequest) bool{
			"hand":     func(m *runlogv1.AppendEventsRequest) bool { return readAppend(wire, m) },
			"protobuf": func(m *runlogv1.AppendEventsRequest) bool { return proto.Unmarshal(wire, m) == nil },
		} {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if !read(&runlogv1.AppendEventsRequest{}) {
						b.Fatal("not decoded")
					}
				}
			})
		}
	}
}
