package contract

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// goldenEvents are the events of testdata/canonical.golden, whose bytes were made from
// docs/formats.md by another program.
func goldenEvents() map[string]*Event {
	return map[string]*Event{
		"full": {
			EventID: [16]byte{0x01, 0x8f, 0x4e, 0x7a, 0x1c, 0x2b, 0x7d, 0xef, 0x81, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef},
			Type:    StepCompleted, RunID: "run_2026-02-11_abc123", TenantID: "tenant_acme", ProjectID: "proj_marketing",
			EnvironmentID: "prod", PlanID: "plan_xyz", PlanVersion: "1.2", StepID: "build_models",
			LogicalAttemptID: 1, EngineAttemptID: 2,
			IdempotencyKey: DeriveKey(Line2, "run_2026-02-11_abc123", "build_models", 1, 1, StepCompleted, "plan_xyz", "1.2"),
			KeyDerived:     true, EmittedAt: 1770805800123456789, EmittedBy: "activity-wörker", CausedBySignalID: "sig-7",
			ParentEventID: "018f4e7a-1c2b-7def-8123-456789abcdee",
			Payload:       []byte(`{"rows": 18,"note":"d\u00e9jà"}`),
		},
		"plain": {
			Type: RunQueued, RunID: "r", TenantID: "t", ProjectID: "p", EnvironmentID: "e", PlanID: "pl", PlanVersion: "v",
			LogicalAttemptID: 4294967295, EngineAttemptID: 1,
			IdempotencyKey: DeriveKey(Line2, "r", "", 4294967295, 1, RunQueued, "pl", "v"), KeyDerived: true,
			EmittedAt: -9223372036000000000, Payload: []byte(`{}`),
		},
		// Resolved: the run has filled in what the event left out, and its bytes do not change by
		// it.
		"sparse": {
			EventID: [16]byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef},
			Type:    RunPaused, RunID: "run_2026-02-11_abc123", TenantID: "tenant_acme", ProjectID: "proj_marketing",
			EnvironmentID: "prod", PlanID: "plan_xyz", PlanVersion: "1.2",
			Absent:           AbsentTenant | AbsentProject | AbsentEnvironment | AbsentPlan | AbsentPlanVersion,
			LogicalAttemptID: 1, EngineAttemptID: 1, IdempotencyKey: "pause-run_2026-02-11_abc123",
			EmittedAt: 1770805860000000000, Contract: Line11, Payload: []byte(`{"draining":false}`),
		},
	}
}

func readGolden(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open("testdata/canonical.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	golden := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		golden[name] = value
	}
	return golden
}

// goldenSalt is that of the golden digests and of the example in docs/formats.md.
var goldenSalt = Salt{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func TestAPP11GoldenBytes(t *testing.T) {
	golden := readGolden(t)
	checked := 0
	for name, e := range goldenEvents() {
		payload, record := e.Digests(goldenSalt, Author{}, Original{})
		content := e.ContentDigest()
		first := ChainDigest(Digest{}, record, 1, 1770805800123456790)
		second := ChainDigest(first, record, 2, -1)
		for what, got := range map[string]string{
			"canonical":     hex.EncodeToString(e.AppendCanonical(nil)),
			"payloadDigest": payload.String(),
			"recordDigest":  record.String(),
			"contentDigest": hex.EncodeToString(content[:]),
			"chainDigest1":  first.String(),
			"chainDigest2":  second.String(),
		} {
			if want := golden[name+"."+what]; got != want {
				t.Errorf("%s.%s:\n got %s\nwant %s", name, what, got, want)
			}
			checked++
		}
		if payload != e.PayloadDigest(goldenSalt) {
			t.Errorf("%s: PayloadDigest differs from Digests", name)
		}
	}
	if checked != len(golden) {
		t.Errorf("checked %d of %d golden values", checked, len(golden))
	}
}

func TestENV1InheritedFieldsAreNotCanonical(t *testing.T) {
	resolved := goldenEvents()["sparse"]
	bare := *resolved
	bare.TenantID, bare.ProjectID, bare.EnvironmentID, bare.PlanID, bare.PlanVersion = "", "", "", "", ""
	if !bytes.Equal(resolved.AppendCanonical(nil), bare.AppendCanonical(nil)) {
		t.Error("what is inherited changes the canonical bytes")
	}
	if resolved.ContentDigest() != bare.ContentDigest() {
		t.Error("what is inherited changes the content digest")
	}
}

func TestAppendCanonicalAppends(t *testing.T) {
	e := goldenEvents()["full"]
	got := e.AppendCanonical([]byte("before"))
	if !bytes.Equal(got, append([]byte("before"), e.AppendCanonical(nil)...)) {
		t.Error("what was in dst is lost")
	}
}

// decodeCanonical reads canonical bytes back, so that a test sees that nothing in them is
// ambiguous.
func decodeCanonical(b []byte) (map[byte]string, error) {
	rest, ok := bytes.CutPrefix(b, []byte(envelopeTag))
	if !ok {
		return nil, fmt.Errorf("no tag")
	}
	fields := map[byte]string{}
	last := byte(0)
	for len(rest) > 0 {
		number := rest[0]
		if number <= last || number > fieldContractVersion {
			return nil, fmt.Errorf("field %d after %d", number, last)
		}
		n := binary.BigEndian.Uint32(rest[1:5])
		fields[number] = string(rest[5 : 5+n])
		rest, last = rest[5+n:], number
	}
	return fields, nil
}

func drawEvent(t *rapid.T) *Event {
	name := rapid.StringN(1, 20, 256)
	optional := rapid.StringN(0, 20, 256)
	return &Event{
		EventID: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "eventId")),
		Type:    name.Draw(t, "type"), RunID: name.Draw(t, "run"), TenantID: name.Draw(t, "tenant"), ProjectID: name.Draw(t, "project"),
		EnvironmentID: name.Draw(t, "environment"), PlanID: name.Draw(t, "plan"), PlanVersion: name.Draw(t, "planVersion"),
		Absent: Absent(rapid.IntRange(0, 31).Draw(t, "absent")), StepID: optional.Draw(t, "step"),
		LogicalAttemptID: rapid.Uint32Min(1).Draw(t, "logical"), EngineAttemptID: rapid.Uint32Min(1).Draw(t, "engine"),
		IdempotencyKey: name.Draw(t, "key"), EmittedAt: rapid.Int64().Draw(t, "emittedAt"), EmittedBy: optional.Draw(t, "emittedBy"),
		CausedBySignalID: optional.Draw(t, "signal"), ParentEventID: optional.Draw(t, "parent"),
		Contract: Line(rapid.IntRange(0, 1).Draw(t, "line")), Payload: []byte(`{"n":` + fmt.Sprint(rapid.Uint16().Draw(t, "payload")) + `}`),
	}
}

// The canonical bytes say every field, once, and can be read back.
func TestAPP11CanonicalBytesAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		fields, err := decodeCanonical(e.AppendCanonical(nil))
		if err != nil {
			t.Fatal(err)
		}
		number := func(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }
		want := map[byte]string{
			1: string(e.EventID[:]), 2: e.Type, 3: e.RunID, 10: number(uint64(e.LogicalAttemptID)), 11: number(uint64(e.EngineAttemptID)),
			12: e.IdempotencyKey, 13: number(uint64(e.EmittedAt)), 17: e.Contract.String(),
		}
		for i, text := range []string{e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanID, e.PlanVersion} {
			if e.Absent&(1<<i) == 0 {
				want[byte(4+i)] = text
			}
		}
		for n, text := range map[byte]string{9: e.StepID, 14: e.EmittedBy, 15: e.CausedBySignalID, 16: e.ParentEventID} {
			if text != "" {
				want[n] = text
			}
		}
		if fmt.Sprint(fields) != fmt.Sprint(want) {
			t.Fatalf("got %q, want %q", fields, want)
		}
	})
}

// The four fields outside the content leave its digest alone; every other change moves it.
func TestIDM7ContentDigestFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		e.Absent = 0
		other := *e
		other.EventID[0]++
		other.EngineAttemptID++
		other.EmittedAt++
		other.EmittedBy += "x"
		if e.ContentDigest() != other.ContentDigest() || !SameContent(e, &other) {
			t.Fatal("a field outside the content counts")
		}
		_, before := e.Digests(goldenSalt, Author{}, Original{})
		if _, after := other.Digests(goldenSalt, Author{}, Original{}); before == after {
			t.Fatal("a field outside the content is outside the record digest")
		}
		change := rapid.SampledFrom([]func(*Event){
			func(e *Event) { e.Type += "x" }, func(e *Event) { e.RunID += "x" }, func(e *Event) { e.TenantID += "x" },
			func(e *Event) { e.ProjectID += "x" }, func(e *Event) { e.EnvironmentID += "x" }, func(e *Event) { e.PlanID += "x" },
			func(e *Event) { e.PlanVersion += "x" }, func(e *Event) { e.StepID += "x" }, func(e *Event) { e.LogicalAttemptID++ },
			func(e *Event) { e.IdempotencyKey += "x" }, func(e *Event) { e.CausedBySignalID += "x" }, func(e *Event) { e.ParentEventID += "x" },
			func(e *Event) { e.Contract ^= 1 }, func(e *Event) { e.Payload = []byte(`{"other":1}`) },
		}).Draw(t, "change")
		change(&other)
		if e.ContentDigest() == other.ContentDigest() || SameContent(e, &other) {
			t.Fatal("a changed field does not count")
		}
	})
}

// The identity is in the record digest and in nothing else; without one, the digest is that of the
// event alone (SEC-8).
func TestSEC8AppendedByInTheRecordDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		by := Author{Name: rapid.StringN(1, 60, 256).Draw(t, "identity"), TokenID: rapid.StringN(1, 60, 256).Draw(t, "token")}
		payload, plain := e.Digests(goldenSalt, Author{}, Original{})
		if plain != sha256.Sum256(append(e.AppendCanonical(nil), payload[:]...)) {
			t.Fatal("without an identity, the record digest has more than the event")
		}
		suffix := append([]byte{18, 0, 0, byte(len(by.Name) >> 8), byte(len(by.Name))}, by.Name...)
		token := append([]byte{22, 0, 0, byte(len(by.TokenID) >> 8), byte(len(by.TokenID))}, by.TokenID...)
		for _, c := range []struct {
			by   Author
			want []byte
		}{{Author{Name: by.Name}, suffix}, {by, append(slices.Clone(suffix), token...)}} {
			same, with := e.Digests(goldenSalt, c.by, Original{})
			if same != payload || with != sha256.Sum256(append(append(e.AppendCanonical(nil), payload[:]...), c.want...)) {
				t.Fatalf("digests with %+v: %s, %s", c.by, same, with)
			}
			for _, other := range []Author{{}, {c.by.Name + "x", c.by.TokenID}, {c.by.Name, c.by.TokenID + "x"}, {c.by.TokenID, c.by.Name}} {
				if _, digest := e.Digests(goldenSalt, other, Original{}); digest == with && other != c.by {
					t.Fatalf("%+v has the digest of %+v", other, c.by)
				}
			}
		}
	})
}

// What the source of an imported event said is in the record digest (APP-13).
func TestAPP13OriginalInTheRecordDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		o := Original{PersistedAt: rapid.Int64Min(1).Draw(t, "persisted"), Source: rapid.StringN(1, 60, 256).Draw(t, "source")}
		payload, got := e.Digests(goldenSalt, Author{}, o)
		want := binary.BigEndian.AppendUint64(append(append(e.AppendCanonical(nil), payload[:]...), 20, 0, 0, 0, 8), uint64(o.PersistedAt))
		want = append(append(want, 21, 0, 0, byte(len(o.Source)>>8), byte(len(o.Source))), o.Source...)
		if got != sha256.Sum256(want) {
			t.Fatalf("digest with %+v: %s", o, got)
		}
	})
}

// A chain differs as soon as a record is missing, moved or changed.
func TestAPP11ChainOrder(t *testing.T) {
	a, b := Digest{1}, Digest{2}
	ab := ChainDigest(ChainDigest(Digest{}, a, 1, 10), b, 2, 20)
	for name, other := range map[string]Digest{
		"swapped":        ChainDigest(ChainDigest(Digest{}, b, 1, 10), a, 2, 20),
		"missing":        ChainDigest(Digest{}, b, 2, 20),
		"other sequence": ChainDigest(ChainDigest(Digest{}, a, 1, 10), b, 3, 20),
		"other time":     ChainDigest(ChainDigest(Digest{}, a, 1, 10), b, 2, 21),
	} {
		if other == ab {
			t.Errorf("%s: the chain does not tell", name)
		}
	}
}

// TestEventIDString: an EventID is written as a UUID is.
func TestEventIDString(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := EventID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		if got, want := id.String(), uuid.UUID(id).String(); got != want || len(got) != EventIDText {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
