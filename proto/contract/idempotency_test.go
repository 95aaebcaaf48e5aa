package contract

import (
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

func TestIDM5Keys(t *testing.T) {
	derived2 := DeriveKey(Line2, "run_2026-02-11_abc123", "build_models", 1, 1, StepCompleted, "plan_xyz", "1.2")
	derived11 := DeriveKey(Line11, "run_2026-02-11_abc123", "build_models", 1, 1, StepCompleted, "plan_xyz", "1.2")
	longest := strings.Repeat("k", 128)
	for _, c := range []struct {
		name, version, key string
		opaque             bool
		want               string // the key; empty for a refusal
		derived            bool
	}{
		{"2.x absent", "2.0.0", "", false, derived2, true},
		{"2.x right", "2.0.0", derived2, false, derived2, true},
		{"2.x upper case", "2.0.0", strings.ToUpper(derived2), false, "", false},
		{"2.x of the old line", "2.0.0", derived11, false, "", false},
		{"2.x other", "2.0.0", "pause-1", false, "", false},
		{"2.x opaque absent", "2.0.0", "", true, derived2, true},
		{"2.x opaque right", "2.0.0", derived2, true, derived2, true},
		{"2.x opaque other", "2.0.0", "pause-1", true, "pause-1", false},
		{"2.x opaque not printable", "2.0.0", "pause\n", true, "", false},
		{"1.1 absent", "1.1", "", false, derived11, true},
		{"1.1 right", "1.1", derived11, false, derived11, true},
		{"1.1 other", "1.1", "pause 1~", false, "pause 1~", false},
		{"1.1 longest", "1.1", longest, false, longest, false},
		{"1.1 too long", "1.1", longest + "k", false, "", false},
		{"1.1 not ASCII", "1.1", "é", false, "", false},
		{"1.1 DEL", "1.1", "\x7f", false, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := edited(func(w *runlogv1.EventWrite) { w.ContractVersion, w.IdempotencyKey = c.version, c.key })
			e, bad := Validate(w, Options{OpaqueKeys: c.opaque})
			if c.want == "" {
				if fields(t, bad) != "idempotencyKey" {
					t.Errorf("%v", bad)
				}
				return
			}
			if len(bad) > 0 || e.IdempotencyKey != c.want || e.KeyDerived != c.derived {
				t.Errorf("%q derived %v: %v", e.IdempotencyKey, e.KeyDerived, bad)
			}
		})
	}
}

func TestIDM5MismatchCarriesTheKey(t *testing.T) {
	bad := expectFields(t, edited(func(w *runlogv1.EventWrite) { w.IdempotencyKey = "x" }), Options{}, "idempotencyKey")
	want := DeriveKey(Line2, "run_2026-02-11_abc123", "build_models", 1, 1, StepCompleted, "plan_xyz", "1.2")
	if v := bad[0]; v.Reason != ReasonKeyMismatch || v.Expected != want || !strings.Contains(v.Description, want) {
		t.Errorf("%+v", v)
	}
}

// TestIDM11KeyNamesTheTry: the key of a StepRetrying is that of its try. Without a try there is no
// key to expect.
func TestIDM11KeyNamesTheTry(t *testing.T) {
	retrying := func(try uint32, key string) *runlogv1.EventWrite {
		w := eventOf(Line2, StepRetrying, []byte(`{"error":{"message":"boom"}}`))
		w.EngineAttemptId, w.IdempotencyKey = try, key
		return w
	}
	first := DeriveKey(Line2, "run_2026-02-11_abc123", "build_models", 1, 1, StepRetrying, "plan_xyz", "1.2")
	second := DeriveKey(Line2, "run_2026-02-11_abc123", "build_models", 1, 2, StepRetrying, "plan_xyz", "1.2")
	for _, key := range []string{"", second} {
		if e, bad := Validate(retrying(2, key), Options{}); len(bad) > 0 || e.IdempotencyKey != second || !e.KeyDerived {
			t.Errorf("key %q: %q, %v", key, e.IdempotencyKey, bad)
		}
	}
	bad := expectFields(t, retrying(2, first), Options{}, "idempotencyKey")
	if v := bad[0]; v.Expected != second || !strings.Contains(v.Description, "planVersion|engineAttemptId") {
		t.Errorf("%+v", v)
	}
	expectFields(t, retrying(0, first), Options{}, "engineAttemptId")
}

func TestIDM5OldEventWithoutKeyNamesItsPlanVersion(t *testing.T) {
	w := edited(func(w *runlogv1.EventWrite) { w.ContractVersion, w.PlanVersion = "1.1", "" })
	expectFields(t, w, Options{}, "planVersion")
	w.IdempotencyKey = "k"
	if e, bad := Validate(w, Options{}); len(bad) > 0 || e.KeyDerived || e.Absent != AbsentPlanVersion {
		t.Errorf("%+v %v", e, bad)
	}
	// planId is no part of a 1.1 key.
	w.IdempotencyKey, w.PlanVersion, w.PlanId = "", "1.2", ""
	if e, bad := Validate(w, Options{}); len(bad) > 0 || !e.KeyDerived || e.Absent != AbsentPlan {
		t.Errorf("%+v %v", e, bad)
	}
}

// What a platform's retry changes leaves the key alone.
func TestIDM4OutsideTheKey(t *testing.T) {
	first, _ := Validate(benchEvent(), Options{})
	again, bad := Validate(edited(func(w *runlogv1.EventWrite) {
		w.TenantId, w.ProjectId, w.EnvironmentId, w.EngineAttemptId, w.EventId = "t", "p", "e", 9, ""
		w.EmittedAt.Seconds++
		w.EmittedBy, w.PayloadForm = "other", nil
	}), Options{})
	if len(bad) > 0 || first.IdempotencyKey != again.IdempotencyKey {
		t.Errorf("%s, then %s %v", first.IdempotencyKey, again.IdempotencyKey, bad)
	}
}

func TestEventIDForms(t *testing.T) {
	for text, want := range map[string]string{
		"018F4E7A-1C2B-7DEF-8123-456789ABCDEF": "018f4e7a-1c2b-7def-8123-456789abcdef",
		// the example of contract 1.1
		"01234567-89ab-cdef-0123-456789abcdef": "01234567-89ab-cdef-0123-456789abcdef",
	} {
		e, bad := Validate(edited(func(w *runlogv1.EventWrite) { w.EventId = text }), Options{})
		if len(bad) > 0 || e.EventID.String() != want {
			t.Errorf("%s: %s %v", text, e.EventID, bad)
		}
	}
	for _, text := range []string{
		"x", "018f4e7a1c2b7def8123456789abcdef", "{018f4e7a-1c2b-7def-8123-456789abcdef}", "urn:uuid:018f4e7a-1c2b-7def-8123-456789abcdef",
		"018f4e7a-1c2b-7def-8123-456789abcdeg", "018f4e7a-1c2b-7def-8123_456789abcdef", " 18f4e7a-1c2b-7def-8123-456789abcdef", strings.Repeat("\xff", 36),
	} {
		expectFields(t, edited(func(w *runlogv1.EventWrite) { w.EventId = text }), Options{}, "eventId")
	}
}

func TestEventIDMade(t *testing.T) {
	w := edited(func(w *runlogv1.EventWrite) { w.EventId = "" })
	a, _ := Validate(w, Options{})
	b, _ := Validate(w, Options{})
	if a.EventID == b.EventID || a.EventID[6]>>4 != 7 || a.EventID[8]>>6 != 2 {
		t.Errorf("%s, %s", a.EventID, b.EventID)
	}
	c, _ := Validate(w, Options{NewEventID: func() EventID { return EventID{1, 2, 3} }})
	if c.EventID != (EventID{1, 2, 3}) {
		t.Errorf("%s", c.EventID)
	}
}

// A right event with its key and id costs no allocation.
func TestValidateAllocations(t *testing.T) {
	w := benchEvent()
	w.IdempotencyKey = DeriveKey(Line2, w.RunId, w.StepId, 1, 1, w.EventType, w.PlanId, w.PlanVersion)
	var sink int
	if n := testing.AllocsPerRun(100, func() {
		e, bad := Validate(w, Options{RunID: w.RunId})
		payload, record := e.Digests(Salt{}, Author{}, Original{})
		content := e.ContentDigest()
		sink += len(bad) + int(payload[0]+record[0]+content[0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
