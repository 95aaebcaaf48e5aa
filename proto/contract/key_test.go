package contract

import (
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// keyParts are the arguments of DeriveKey.
type keyParts struct {
	line              Line
	run, step         string
	attempt, engine   uint32
	typ, plan, planVn string
}

func (p keyParts) derive() string {
	return DeriveKey(p.line, p.run, p.step, p.attempt, p.engine, p.typ, p.plan, p.planVn)
}

// keyVectors were made with printf '%s' 'run-1|build|…' | sha256sum.
var keyVectors = []struct {
	parts keyParts
	want  string
}{
	{keyParts{Line2, "run_2026-02-11_abc123", "", 1, 1, RunStarted, "plan_xyz", "1.2"}, "248477bb4aac86dd3c3206f05e80b7a1bbecde1df0b7bde318e240577b705c5a"},
	{keyParts{Line11, "run_2026-02-11_abc123", "", 1, 1, RunStarted, "plan_xyz", "1.2"}, "d83771af5b84baa2de5960eb05b227e463fe30f67383adc9974e22718da6820c"},
	{keyParts{Line2, "run-1", "build", 2, 1, StepFailed, "plan-7", "v1.0.0"}, "c954313126825c5345b8386a639564e2839d388d77dbc4bb42c6a81e9855e9bd"},
	{keyParts{Line11, "run-1", "build", 2, 1, StepFailed, "", "v1.0.0"}, "9cf3f4efd9dabe46cfe9cf676ed3062a6734cd265074651a54a7d8994581ac66"},
	{keyParts{Line2, "run-1", "", 1, 1, RunPaused, "plan-7", "v1.0.0"}, "c839e3135de240815a414d6baf66b9a346d16df13ec830fb334449ace2f1da0b"},
	{keyParts{Line2, "läuf 1 ", "Étape", 10, 1, StepStarted, " Plan ", "1 "}, "378318fb5045481c88b450fe3a51ff8f323f1824bfaaa8b6c4470b8ee8b4f976"},
	{keyParts{Line2, "run-1", "build", 2, 3, StepRetrying, "plan-7", "v1.0.0"}, "039f9ec6fe4368f8956cb1643dcf7b1690cb54a6ed7ba75907528efc0ad345dc"},
	{keyParts{Line11, "run-1", "build", 2, 3, StepRetrying, "", "v1.0.0"}, "433e15b6c5c92154f926bc34743398049877c315fb67895e46590af2e0a7d991"},
	{keyParts{Line2, "r", "", 4294967295, 1, "Custom.Type", "p", "v"}, "92cbc2bdfa8465bc417515aa48d899c436fa384c1b6f7f414b2f958192bec734"},
}

func TestIDM1KeyBytes(t *testing.T) {
	for _, v := range keyVectors {
		if got := v.parts.derive(); got != v.want {
			t.Errorf("%+v: got %s, want %s", v.parts, got, v.want)
		}
	}
}

// Nothing is normalised: composed and decomposed forms, cases and spaces name different events.
func TestIDM1NoNormalisation(t *testing.T) {
	seen := map[string]string{}
	for _, run := range []string{"é", "e\u0301", "É", " é", "é "} {
		key := keyParts{Line2, run, "", 1, 1, RunStarted, "p", "v"}.derive()
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have one key", run, other)
		}
		seen[key] = run
	}
}

func TestIDM2RunStandsForNoStep(t *testing.T) {
	without := keyParts{Line2, "r", "", 1, 1, SignalAccepted, "p", "v"}
	with := without
	with.step = "RUN"
	if without.derive() != with.derive() {
		t.Error("an absent stepId is not RUN in the key")
	}
}

func TestIDM3PlanIDOutsideTheOldKey(t *testing.T) {
	a := keyParts{Line11, "r", "s", 1, 1, StepStarted, "plan-a", "v"}
	b := a
	b.plan = "plan-b"
	if a.derive() != b.derive() {
		t.Error("planId takes part in a 1.1 key")
	}
	a.line, b.line = Line2, Line2
	if a.derive() == b.derive() {
		t.Error("planId takes no part in a 2.x key")
	}
}

// Names longer than the stack buffer give the same kind of key.
func TestIDM1LongNames(t *testing.T) {
	long := strings.Repeat("n", 256)
	key := keyParts{Line2, long, long, 1, 1, long, long, long}.derive()
	if raw, err := hex.DecodeString(key); err != nil || len(raw) != 32 {
		t.Errorf("key %q", key)
	}
}

// TestIDM11EachTryHasItsKey: the try of the platform is a part of the key of a StepRetrying, and of
// no other (IDM-4).
func TestIDM11EachTryHasItsKey(t *testing.T) {
	for _, name := range append(knownTypes, "Custom.Type") {
		first := keyParts{Line2, "r", "s", 1, 1, name, "p", "v"}
		second := first
		second.engine = 2
		if same := first.derive() == second.derive(); same == (name == StepRetrying) {
			t.Errorf("%s: two tries have one key: %v", name, same)
		}
	}
}

// A change of any one part changes the key.
func TestIDM1EveryPartCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z0-9_.:-]{1,12}`)
		a := keyParts{
			line: Line2, run: name.Draw(t, "run"), step: name.Draw(t, "step"), attempt: rapid.Uint32Min(1).Draw(t, "attempt"), engine: rapid.Uint32Min(1).Draw(t, "engine attempt"),
			typ: name.Draw(t, "type"), plan: name.Draw(t, "plan"), planVn: name.Draw(t, "version"),
		}
		b := a
		switch rapid.IntRange(0, 5).Draw(t, "part") {
		case 0:
			b.run += "x"
		case 1:
			b.step += "x"
		case 2:
			b.attempt++
		case 3:
			b.typ += "x"
		case 4:
			b.plan += "x"
		case 5:
			b.planVn += "x"
		}
		if a.derive() == b.derive() {
			t.Fatalf("%+v and %+v have one key", a, b)
		}
		if again := a; again.derive() != a.derive() {
			t.Fatal("not a function")
		}
	})
}

func TestKeyHash(t *testing.T) {
	got := KeyHash("pause-run_2026-02-11_abc123")
	const want = "286f9f9d5fc9bec67a8b6466824dbf52be53caa0b3c118d4f43a157b61b74f71" // sha256sum
	if hex.EncodeToString(got[:]) != want {
		t.Errorf("got %x, want %s", got, want)
	}
}
