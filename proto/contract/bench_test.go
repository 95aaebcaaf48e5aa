package contract

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract/jsontext"
	"runlog/proto/contract/secrets"
	runlogv1 "runlog/proto/runlog/v1"
)

// benchPayload is about 400 bytes of what a StepCompleted says.
var benchPayload = []byte(`{"artifacts":[{"uri":"s3://dvt-artifacts/prod/run_2026-02-11_abc123/build/manifest.json","kind":"dbt-manifest","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","sizeBytes":184320},{"uri":"s3://dvt-artifacts/prod/run_2026-02-11_abc123/build/run_results.json","kind":"dbt-run-results"}],"metrics":{"rowsRead":1829301,"cpuSeconds":12.75,"warehouse":"wh_\u00e9tl"},"completedAt":"2026-02-11T10:31:12.500Z"}`)

func benchEvent() *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventId:          "018f4e7a-1c2b-7def-8123-456789abcdef",
		EventType:        StepCompleted,
		RunId:            "run_2026-02-11_abc123",
		TenantId:         "tenant_acme",
		ProjectId:        "proj_marketing",
		EnvironmentId:    "prod",
		PlanId:           "plan_xyz",
		PlanVersion:      "1.2",
		StepId:           "build_models",
		LogicalAttemptId: 1,
		EngineAttemptId:  2,
		EmittedAt:        &timestamppb.Timestamp{Seconds: 1770805800, Nanos: 123456789},
		EmittedBy:        "activity-worker",
		PayloadForm:      &runlogv1.EventWrite_PayloadJson{PayloadJson: benchPayload},
	}
}

func BenchmarkValidate(b *testing.B) {
	var o Options
	run := func(name string, w *runlogv1.EventWrite) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, bad := Validate(w, o); len(bad) > 0 {
					b.Fatal(bad)
				}
			}
		})
	}
	w := benchEvent()
	w.IdempotencyKey = DeriveKey(Line2, w.RunId, w.StepId, 1, 1, w.EventType, w.PlanId, w.PlanVersion)
	run("given", w)
	w = proto.CloneOf(w)
	w.IdempotencyKey = ""
	run("keyDerived", w)
	w = proto.CloneOf(w)
	w.EventId = ""
	run("keyAndIDMade", w)
	o.Secret = func(string, secrets.Kind) bool { return true }
	run("keyAndIDMadeScanned", w)
}

func BenchmarkCheckObject(b *testing.B) {
	b.Run("contract", func(b *testing.B) {
		for b.Loop() {
			jsontext.CheckObject(benchPayload, MaxDepth)
		}
	})
	b.Run("encodingJSON", func(b *testing.B) {
		for b.Loop() {
			json.Valid(benchPayload)
		}
	})
}

// BenchmarkSchema compares the one pass over a payload's bytes, syntax included, with what else
// there is: the closer look, and the JSON Schema library with the decoding that it needs.
func BenchmarkSchema(b *testing.B) {
	started := payloadOf(b, flatRunStarted)
	for _, c := range []struct {
		name, eventType string
		line            Line
		payload         []byte
	}{{"StepCompleted", StepCompleted, Line2, benchPayload}, {"RunStarted11", RunStarted, Line11, started}} {
		r := payloadRule(c.line, c.eventType)
		b.Run(c.name+"/accept", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !r.Accepts(c.payload) {
					b.Fatal("not accepted")
				}
			}
		})
		b.Run(c.name+"/explain", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Faults(c.payload, MaxViolations)
			}
		})
		b.Run(c.name+"/library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				judged(c.line, c.eventType, c.payload)
			}
		})
	}
}

func payloadOf(b *testing.B, line string) []byte {
	w, err := ParseEvent([]byte(line))
	if err != nil {
		b.Fatal(err)
	}
	return w.GetPayloadJson()
}

func BenchmarkDigests(b *testing.B) {
	e, bad := Validate(benchEvent(), Options{})
	if len(bad) > 0 {
		b.Fatal(bad)
	}
	b.Run("record", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.Digests(Salt{}, Author{}, Original{})
		}
	})
	b.Run("content", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.ContentDigest()
		}
	})
	b.Run("chain", func(b *testing.B) {
		b.ReportAllocs()
		var d Digest
		for b.Loop() {
			d = ChainDigest(d, d, 1, 2)
		}
	})
	b.Run("key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
		}
	})
	b.Run("keyHash", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			KeyHash(e.IdempotencyKey)
		}
	})
}

func BenchmarkSameContent(b *testing.B) {
	e, bad := Validate(benchEvent(), Options{})
	if len(bad) > 0 {
		b.Fatal(bad)
	}
	other := e
	other.Payload = []byte(strings.ReplaceAll(string(e.Payload), `":`, `": `))
	b.ReportAllocs()
	for b.Loop() {
		if !SameContent(&e, &other) {
			b.Fatal("diverged")
		}
	}
}

func BenchmarkParseEvent(b *testing.B) {
	line := []byte(flatRunStarted)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseEvent(line); err != nil {
			b.Fatal(err)
		}
	}
}
