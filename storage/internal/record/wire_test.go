package record

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"runlog/proto/contract/contracttest"
	recordv1 "runlog/proto/record/v1"
)

// TestWireAgreesWithProtobuf holds what is decoded by hand to the generated messages, field by
// field.
func TestWireAgreesWithProtobuf(t *testing.T) {
	text := rapid.StringN(0, 8, 20)
	some := rapid.SliceOfN(rapid.Byte(), 0, 40)
	number := rapid.Uint32()
	rapid.Check(t, func(t *rapid.T) {
		plan := &recordv1.Plan{PlanId: text.Draw(t, "plan"), PlanVersion: text.Draw(t, "version")}
		m := &recordv1.Body{}
		contracttest.DrawMessage(t, m, text, some)
		m.Contract, m.Absent = m.Contract%2, m.Absent%32
		var b body
		if err := b.parse(encoded(t, m)); err != nil {
			t.Fatal(err)
		}
		r := &b.record
		back := &recordv1.Body{
			EventId: b.eventID, TypeCode: b.typeCode, TypeName: r.Type, StepId: r.StepID,
			LogicalAttemptId: r.LogicalAttemptID, EngineAttemptId: r.EngineAttemptID, IdempotencyKey: r.IdempotencyKey,
			EmittedAt: r.EmittedAt, EmittedBy: r.EmittedBy, CausedBySignalId: r.CausedBySignalID,
			ParentEventId: r.ParentEventID, Contract: uint32(r.Contract), Payload: r.Payload, Absent: uint32(r.Absent),
			RunSeq: r.RunSeq, OriginalPersistedAt: r.Original.PersistedAt, OriginalSource: r.Original.Source,
			AppendedBy: r.AppendedBy.Name, AppendedByTokenId: r.AppendedBy.TokenID, Extensions: r.Extensions, PayloadSalt: b.salt,
		}
		if b.plan != nil {
			back.Plan = b.plan.Message()
		}
		if !bytes.Equal(encoded(t, back), encoded(t, m)) {
			t.Fatalf("body %v is read as %v", m, back)
		}

		a := &recordv1.Append{
			RunId: text.Draw(t, "run"), Plan: plan, Headers: some.Draw(t, "headers"), FirstAbsent: m.Absent,
			Scope:  &recordv1.Scope{TenantId: text.Draw(t, "tenant"), ProjectId: text.Draw(t, "project"), EnvironmentId: text.Draw(t, "environment")},
			Blocks: []*recordv1.Block{{Count: number.Draw(t, "count"), Codec: 1, RawSize: number.Draw(t, "size"), Data: some.Draw(t, "data")}, {Count: 1}},
		}
		if rapid.Bool().Draw(t, "expects") {
			a.ExpectedLastSeq = proto.Uint64(rapid.Uint64().Draw(t, "expected"))
		}
		if rapid.Bool().Draw(t, "fenced") {
			a.Fence = proto.Uint64(rapid.Uint64().Draw(t, "fence"))
		}
		if rapid.Bool().Draw(t, "creates") {
			a.Create = &recordv1.RunMetadata{EngineType: text.Draw(t, "engine type")}
		}
		var c AppendCommand
		ops, err := ParseCommand(encoded(t, &recordv1.Command{Append: a}), &c, nil)
		if err != nil || len(ops) > 0 {
			t.Fatal(ops, err)
		}
		again := &recordv1.Append{
			RunId: string(c.RunID), Scope: c.Scope.Message(), Plan: c.Plan.Message(), ExpectedLastSeq: c.Expected, Fence: c.Fence,
			Create: c.Create, Headers: c.Headers, FirstAbsent: uint32(c.Absent),
		}
		for _, b := range c.Blocks {
			again.Blocks = append(again.Blocks, &recordv1.Block{Count: b.Count, Codec: b.Codec, RawSize: b.RawSize, Data: b.Data})
		}
		if !bytes.Equal(encoded(t, again), encoded(t, a)) {
			t.Fatalf("append %v is read as %v", a, again)
		}
	})
}

func encoded(t *rapid.T, m proto.Message) []byte {
	b, err := Deterministic.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
