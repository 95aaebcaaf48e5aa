package wire

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"runlog/proto/contract/contracttest"
	runlogv1 "runlog/proto/runlog/v1"
)

// drawDelivery draws a delivery of the size that is decoded by hand, in which any field may be
// absent.
func drawDelivery(t *rapid.T) *runlogv1.EventDelivery {
	d := &runlogv1.EventDelivery{Event: &runlogv1.EventRecord{}}
	contracttest.DrawMessage(t, d, rapid.StringN(0, 40, 80), rapid.SliceOfN(rapid.Byte(), 0, 100))
	d.DeliveryId = strings.Repeat("7", leastDelivery)
	return d
}

// TestDeliveriesBUS8: every delivery that a node sends is decoded by hand, and as proto.Unmarshal
// does it.
func TestDeliveriesBUS8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawDelivery(t)
		data, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var d delivery
		if !d.parse(data) || !proto.Equal(&d.m, want) {
			t.Fatalf("%v is decoded as\n%v", want, &d.m)
		}
	})
}

// FuzzDeliveriesBUS8: an answer of Consume is decoded as proto.Unmarshal does it.
func FuzzDeliveriesBUS8(f *testing.F) {
	drawn := rapid.Custom(drawDelivery)
	whole := drawn.Example(1)
	form := &runlogv1.EventDelivery{Event: &runlogv1.EventRecord{PayloadForm: &runlogv1.EventRecord_Payload{Payload: &structpb.Struct{}}}}
	for _, list := range [][]*runlogv1.EventDelivery{nil, {whole}, {whole, {}, form, whole}, {drawn.Example(2)}, {drawn.Example(3), drawn.Example(4)}} {
		data, err := proto.Marshal(&runlogv1.ConsumeResponse{Deliveries: list})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(append(data, 0x10, 1))   // a field of a later version
		f.Add(append(data, 0x0a, 200)) // cut off
	}
	for _, body := range []string{
		"\x0a\x01\xff",                                 // an id that is not UTF-8
		"\x1a\x02\x0a\x00\x1a\x02P\x01",                // two events, which are merged
		"\x1a\x08j\x02\x08\x01j\x02\x10\x02",           // two times, which are merged
		"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // an attempt of 64 bits
		"\x1a\x02(\x01",                                // a text that is a number
	} {
		f.Add(append([]byte{0x0a, byte(len(body))}, body...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want runlogv1.ConsumeResponse
		wantErr := proto.Unmarshal(data, &want)
		input := append([]byte{}, data...)
		gotErr := Codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(input)}, &got)
		clear(input) // It keeps nothing of it.
		if (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("error %v, want %v", gotErr, wantErr)
		}
		if gotErr == nil && !proto.Equal(&got, &want) {
			t.Errorf("%v\nwant %v", &got, &want)
		}
	})
}

// TestEmptyDeliveriesBUS8: an answer of a server that breaks the protocol takes little more memory
// than proto.Unmarshal needs for it.
func TestEmptyDeliveriesBUS8(t *testing.T) {
	data := bytes.Repeat([]byte{0x0a, 0x00}, 32<<10)
	allocated := func(decode func([]byte, *runlogv1.ConsumeResponse) error) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := decode(data, &runlogv1.ConsumeResponse{}); err != nil {
			t.Error(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	own := allocated(UnmarshalDeliveries)
	if theirs := allocated(func(data []byte, m *runlogv1.ConsumeResponse) error { return proto.Unmarshal(data, m) }); own > 2*theirs {
		t.Errorf("%d bytes for an answer of %d; proto.Unmarshal needs %d", own, len(data), theirs)
	}
}

func BenchmarkDeliveries(b *testing.B) {
	d := &runlogv1.EventDelivery{DeliveryId: "7-run", Attempt: 1, Event: &runlogv1.EventRecord{
		EventId: "0190cd35-0000-7000-8000-000000000001", EventType: "StepCompleted", RunId: "run", TenantId: "tenant", ProjectId: "project",
		EnvironmentId: "production", PlanId: "plan", PlanVersion: "1", StepId: proto.String("step"), LogicalAttemptId: 1, EngineAttemptId: 1,
		IdempotencyKey: "run:step:1:StepCompleted", EmittedAt: timestamppb.Now(), EmittedBy: proto.String("bench"), ContractVersion: "2.0.0",
		PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: make([]byte, 200)}, RunSeq: 7, PersistedAt: timestamppb.Now(),
		PayloadSalt: string(make([]byte, 32)), PayloadDigest: string(make([]byte, 64)), RecordDigest: string(make([]byte, 64)), ChainDigest: string(make([]byte, 64)),
	}}
	m := &runlogv1.ConsumeResponse{}
	for range 512 {
		m.Deliveries = append(m.Deliveries, d)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func([]byte, *runlogv1.ConsumeResponse) error{
		"hand": UnmarshalDeliveries, "proto": func(data []byte, m *runlogv1.ConsumeResponse) error { return proto.Unmarshal(data, m) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(data, &runlogv1.ConsumeResponse{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(m.Deliveries)), "ns/event")
		})
	}
}
