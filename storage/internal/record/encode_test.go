package record

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/proto/contract/contracttest"
	recordv1 "runlog/proto/record/v1"
)

// drawAppend draws a request of a few events. It need not pass the contract's rules.
func drawAppend(t *rapid.T) *Append {
	text := rapid.StringN(0, 6, 12)
	some := rapid.SliceOfN(rapid.Byte(), 0, 2000)
	a := &Append{RunID: text.Draw(t, "run"), AppendedBy: contract.Author{Name: text.Draw(t, "caller"), TokenID: text.Draw(t, "token")}}
	scope := Scope{TenantID: text.Draw(t, "tenant"), ProjectID: text.Draw(t, "project"), EnvironmentID: text.Draw(t, "environment")}
	types := rapid.SampledFrom([]string{contract.RunStarted, contract.RunPaused, contract.RunFailed, contract.StepCompleted, "SomethingElse"})
	for range rapid.IntRange(0, 40).Draw(t, "events") {
		e := contracttest.Draw(t, text, some).Event
		e.Type, e.RunID, e.TenantID, e.ProjectID, e.EnvironmentID = types.Draw(t, "type"), a.RunID, scope.TenantID, scope.ProjectID, scope.EnvironmentID
		e.LogicalAttemptID, e.KeyDerived = 1+e.LogicalAttemptID%300, rapid.Bool().Draw(t, "derived")
		a.Events = append(a.Events, e)
	}
	if rapid.Bool().Draw(t, "expects") {
		a.ExpectedLastSeq = proto.Uint64(rapid.Uint64().Draw(t, "expected"))
	}
	if rapid.Bool().Draw(t, "fenced") {
		a.Fence = proto.Uint64(rapid.Uint64().Draw(t, "fence"))
	}
	a.OnlyNew = rapid.Bool().Draw(t, "only new")
	if rapid.Bool().Draw(t, "imports") {
		for range a.Events {
			a.Imported = append(a.Imported, Assigned{rapid.Uint64Min(1).Draw(t, "seq"), contract.Original{PersistedAt: rapid.Int64().Draw(t, "persisted"), Source: text.Draw(t, "source")}})
		}
	}
	if rapid.Bool().Draw(t, "creates") {
		a.Create = &Creation{Scope: scope, Metadata: Metadata{EngineType: text.Draw(t, "engine type")}}
		a.Exclusive = rapid.Bool().Draw(t, "exclusive")
		if rapid.Bool().Draw(t, "has a plan") {
			a.Create.Metadata.PlanRef = &PlanRef{PlanID: text.Draw(t, "plan"), PlanVersion: text.Draw(t, "version")}
		}
	}
	for i := range a.Events {
		a.Salts = append(a.Salts, contract.Salt(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, fmt.Sprint("salt ", i))))
	}
	if a.Keyed = rapid.Bool().Draw(t, "keyed"); !a.Keyed {
		a.ReceiptKey = ReceiptKey{1 + rapid.ByteMax(254).Draw(t, "receipt key")}
	}
	return a
}

// TestEncodingIsThatOfProtobuf holds what is encoded by hand to the generated messages: they read
// every field, and write the same bytes.
func TestEncodingIsThatOfProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAppend(t)
		c, err := EncodeAppend(a)
		if err != nil {
			t.Fatal(err)
		}
		m := &recordv1.Command{}
		if err := proto.Unmarshal(CommandBytes(c), m); err != nil {
			t.Fatal(err)
		}
		if got := encoded(t, m); !bytes.Equal(got, CommandBytes(c)) {
			t.Fatalf("protobuf encodes %v as\n%x\nand not as\n%x", m, got, CommandBytes(c))
		}
		op, err := AppendOperation(a)
		if err != nil || !bytes.Equal(op.Data, encoded(t, m.Append)) {
			t.Fatalf("the operation has %x, want %x (%v)", op.Data, encoded(t, m.Append), err)
		}
		sameBodies(t, a, m.Append)
	})
}

// sameBodies compares the events of a request with the bodies of its message.
func sameBodies(t *rapid.T, a *Append, m *recordv1.Append) {
	run := &recordv1.RunIdentity{RunId: a.RunID, Scope: m.Scope, Plan: m.Plan}
	i := 0
	for _, block := range m.Blocks {
		b := Block{Count: uint64(block.Count), Codec: byte(block.Codec), RawSize: uint64(block.RawSize), Data: block.Data}
		raw, err := b.raw()
		if err != nil {
			t.Fatal(err)
		}
		for ; len(raw) > 0; i++ {
			var body []byte
			if body, raw, err = NextBody(raw); err != nil {
				t.Fatal(err)
			}
			read := &recordv1.Body{}
			if err := proto.Unmarshal(body, read); err != nil {
				t.Fatal(err)
			}
			if got := encoded(t, read); !bytes.Equal(got, body) {
				t.Fatalf("protobuf encodes body %v as\n%x\nand not as\n%x", read, got, body)
			}
			r, err := parseBody(body, run, m.Plan, false)
			if err != nil {
				t.Fatal(err)
			}
			got, want := r.Event, a.Events[i]
			if want.KeyDerived || want.IdempotencyKey == "" {
				want.KeyDerived, want.IdempotencyKey = true, ""
			}
			fillPlanOf(&want, m.Plan)
			got.TenantID, got.ProjectID, got.EnvironmentID = want.TenantID, want.ProjectID, want.EnvironmentID
			if !bytes.Equal(got.Payload, want.Payload) || !bytes.Equal(got.Extensions, want.Extensions) {
				t.Fatalf("event %d has payload %x and extensions %x", i, got.Payload, got.Extensions)
			}
			got.Payload, got.Extensions, want.Payload, want.Extensions = nil, nil, nil, nil
			if !reflect.DeepEqual(got, want) || r.AppendedBy != a.AppendedBy || r.PayloadSalt != a.Salts[i] {
				t.Fatalf("event %d is read as\n%+v by %+v, want\n%+v by %+v", i, got, r.AppendedBy, want, a.AppendedBy)
			}
			if assigned := (Assigned{r.RunSeq, r.Original}); len(a.Imported) > 0 && assigned != a.Imported[i] {
				t.Fatalf("event %d was assigned %v, want %v", i, assigned, a.Imported[i])
			}
		}
	}
	if i != len(a.Events) {
		t.Fatalf("%d bodies of %d events", i, len(a.Events))
	}
}

// fillPlanOf gives an event that leaves out its plan that of the run.
func fillPlanOf(e *contract.Event, plan *recordv1.Plan) {
	if e.Absent&contract.AbsentPlan != 0 {
		e.PlanID = plan.GetPlanId()
	}
	if e.Absent&contract.AbsentPlanVersion != 0 {
		e.PlanVersion = plan.GetPlanVersion()
	}
}

// TestTextsMustBeUTF8 shows that a text that apply could not read is refused before it is in the
// log.
func TestTextsMustBeUTF8(t *testing.T) {
	const bad = "\xff"
	event := func(set func(*contract.Event)) *Append {
		e := contract.Event{Type: contract.RunStarted, LogicalAttemptID: 1, IdempotencyKey: "key"}
		set(&e)
		return &Append{RunID: "run", Events: []contract.Event{e}}
	}
	for name, a := range map[string]*Append{
		"run":       {RunID: bad},
		"caller":    {RunID: "run", AppendedBy: contract.Author{Name: bad}},
		"token":     {RunID: "run", AppendedBy: contract.Author{TokenID: bad}},
		"tenant":    {RunID: "run", Create: &Creation{Scope: Scope{TenantID: bad}}},
		"engine":    {RunID: "run", Create: &Creation{Metadata: Metadata{EngineType: bad}}},
		"type":      event(func(e *contract.Event) { e.Type = bad }),
		"step":      event(func(e *contract.Event) { e.StepID = bad }),
		"key":       event(func(e *contract.Event) { e.IdempotencyKey = bad }),
		"plan":      event(func(e *contract.Event) { e.PlanVersion = bad }),
		"emittedBy": event(func(e *contract.Event) { e.EmittedBy = bad }),
		"cause":     event(func(e *contract.Event) { e.CausedBySignalID = bad }),
		"parent":    event(func(e *contract.Event) { e.ParentEventID = bad }),
	} {
		if _, err := EncodeAppend(a); err == nil {
			t.Errorf("%s: a text that is not UTF-8 was encoded", name)
		}
	}
}
