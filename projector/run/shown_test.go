package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// place is a member of a payload: alone, in an object, or in the object of a list.
type place struct {
	outer, name string
	listed      bool
}

// pointer returns the JSON Pointer of the place, as warnings have it.
func (p place) pointer() string {
	switch {
	case p.outer == "":
		return "payload/" + p.name
	case p.listed:
		return "payload/" + p.outer + "/0/" + p.name
	default:
		return "payload/" + p.outer + "/" + p.name
	}
}

// in returns a payload with a value at the place.
func (p place) in(base map[string]json.RawMessage, value string) []byte {
	member := func(object json.RawMessage, name, value string) string {
		all := map[string]json.RawMessage{}
		_ = json.Unmarshal(object, &all)
		all[name] = json.RawMessage(value)
		var members []string
		for name, value := range all {
			members = append(members, fmt.Sprintf("%q:%s", name, value))
		}
		slices.Sort(members)
		return "{" + strings.Join(members, ",") + "}"
	}
	whole, _ := json.Marshal(base)
	switch {
	case p.outer == "":
		return []byte(member(whole, p.name, value))
	case p.listed:
		return []byte(member(whole, p.outer, "["+member(json.RawMessage(`{"uri":"u"}`), p.name, value)+"]"))
	default:
		return []byte(member(whole, p.outer, member(base[p.outer], p.name, value)))
	}
}

// basePayload is what a payload of a type must have.
func basePayload(line contract.Line, eventType string) (base map[string]json.RawMessage) {
	text := `{}`
	switch {
	case eventType == contract.StepAttested:
		text = `{"outcome":"FAIL"}`
	case eventType == contract.StepRetrying:
		text = `{"error":{"message":"m"}}`
	case eventType == contract.RunStarted && line == contract.Line11:
		text = `{"status":"RUNNING","engineRunRef":"r","engineType":"mock","startedAt":"2026-02-11T10:30:00Z",` +
			`"planRef":{"uri":"u","sha256":"s","schemaVersion":"1","planId":"p","planVersion":"1"},"context":{"tenantId":"t","projectId":"p","environmentId":"e"}}`
	}
	if err := json.Unmarshal([]byte(text), &base); err != nil {
		panic(err)
	}
	return base
}

// folded returns the snapshot after an event that is legal.
func folded(eventType string, payload []byte) *Snapshot {
	t, step := runIn(Pending), ""
	switch eventType {
	case contract.RunPaused, contract.RunCompleted:
		t = runIn(Running)
	case contract.RunResumed:
		t = runIn(Paused)
	case contract.StepAttested:
		t.add(contract.StepWaitingForAttestation, "build", 1, `{}`)
	}
	if contract.ScopeOf(eventType) == contract.ScopeStep {
		step = "build"
	}
	t.add(eventType, step, 1, string(payload))
	return ReduceAll(nil, t.records)
}

// readPlaces returns the places of a type that the reducer reads: a value there changes the
// snapshot. Every name that payload.go reads is tried.
func readPlaces(t *testing.T, eventType string) (read []place) {
	source, err := os.ReadFile("payload.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?:case |field\()"(\w+)"`).FindAllSubmatch(source, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 35 {
		t.Fatalf("payload.go reads %q", names)
	}
	base := basePayload(contract.Line2, eventType)
	tells := func(p place) bool {
		var seen [][]byte
		for _, value := range []string{`"zq"`, `"2031-07-08T09:10:11.5Z"`, `123457`, `true`, `false`} {
			if p == (place{name: "outcome"}) {
				return false // It is required, and closed.
			}
			s := folded(eventType, p.in(base, value))
			seen = append(seen, fmt.Append(s.CanonicalJSON(), s.Draining))
		}
		return len(slices.CompactFunc(seen, bytes.Equal)) > 1
	}
	for _, name := range names {
		if p := (place{name: name}); tells(p) {
			read = append(read, p)
		}
		for _, outer := range names {
			for _, listed := range []bool{false, true} {
				if p := (place{outer, name, listed}); tells(p) {
					read = append(read, p)
				}
			}
		}
	}
	return read
}

// TestShownOrWarnedENV12: of every field that the reducer reads, every value that is accepted is
// shown by the snapshot, or the answer warns of it. An empty text says nothing.
func TestShownOrWarnedENV12(t *testing.T) {
	total := 0
	for _, eventType := range slices.Concat([]string{contract.SignalAccepted, contract.SignalRejected}, runEventTypes, stepEventTypes) {
		places := readPlaces(t, eventType)
		if total += len(places); len(places) == 0 {
			continue
		}
		for _, line := range []contract.Line{contract.Line2, contract.Line11} {
			t.Run(line.String()+" "+eventType, rapid.MakeCheck(func(t *rapid.T) {
				p := rapid.SampledFrom(places).Draw(t, "place")
				value := drawnValue().Draw(t, "value")
				checkShown(t, line, eventType, p, value)
			}))
			// Those that were accepted and not shown.
			for _, p := range places {
				for _, value := range []string{`"2016-12-31T23:59:60Z"`, `"0000-06-01T00:00:00Z"`, `"2026-02-11T10:30:00\u005a"`, `1e300`, `1e18`, `9007199254740993.0`, `9223372036854775808`, `"\ud800"`} {
					checkShown(t, line, eventType, p, value)
				}
			}
		}
	}
	if total < 80 {
		t.Errorf("the reducer reads %d fields", total)
	}
}

// drawnValue draws values in JSON that are often nearly right.
func drawnValue() *rapid.Generator[string] {
	digits := func(label string, t *rapid.T) string {
		return rapid.StringMatching(`0|[1-9][0-9]{0,20}`).Draw(t, label)
	}
	return rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 7).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom([]string{"null", "true", "false", "[1]", `{"x":1}`, `["a"]`, "-0", "-1", "0.5"}).Draw(t, "other")
		case 1:
			return digits("number", t)
		case 2:
			return digits("whole", t) + rapid.SampledFrom([]string{".0", ".50", "e3", "e+03", "E-2", "e300", "e400", ".25e2"}).Draw(t, "rest")
		case 3:
			return `"` + digits("text", t) + `"`
		case 4, 5:
			at := time.Unix(rapid.Int64Range(-62200000000, 253500000000).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanos"))
			at = at.In(time.FixedZone("", rapid.IntRange(-1439, 1439).Draw(t, "east")*60))
			return `"` + at.Format(time.RFC3339Nano) + `"`
		case 6:
			return rapid.StringMatching(`"(000[01]|1999|2016|2026|9999)-(02|06|12)-(01|28|29|31)[Tt](00|23):(00|59):(00|59|60)(\.[0-9]{1,12})?([Zz]|[+-](00|01|23):(00|59))"`).Draw(t, "time")
		default:
			return `"` + rapid.SampledFrom([]string{"x", "é", `\n`, `\u0041`, `\ud83d\ude00`, `\ud800`, `\ude00x`, "FAIL"}).Draw(t, "text") + rapid.StringMatching(`[a-z]{3,9}`).Draw(t, "more") + `"`
		}
	})
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func checkShown(t failer, line contract.Line, eventType string, p place, value string) {
	t.Helper()
	payload := p.in(basePayload(line, eventType), value)
	w := &runlogv1.EventWrite{
		EventType: eventType, RunId: "run-1", TenantId: "acme", ProjectId: "marketing", EnvironmentId: "prod", PlanId: "plan-1", PlanVersion: "1.2",
		LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.New(epoch), ContractVersion: line.String(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: payload},
	}
	if contract.ScopeOf(eventType) == contract.ScopeStep {
		w.StepId = "build"
	}
	e, bad := contract.Validate(w, contract.Options{})
	if len(bad) > 0 {
		return // It is not accepted.
	}
	for _, warning := range e.Warnings {
		if at := p.pointer(); warning.Field == at || strings.HasPrefix(at, warning.Field+"/") || strings.HasPrefix(warning.Field, at+"/") {
			return
		}
	}
	// A list or an object of the right form is shown by what it has, which has places of its own.
	if strings.ContainsAny(value[:1], "[{") || shows(folded(eventType, e.Payload), p, value) {
		return
	}
	t.Fatalf("%s %s: %s is accepted without a warning, and the snapshot does not show it: %s", line, eventType, payload, folded(eventType, e.Payload).CanonicalJSON())
}

// shows reports whether a snapshot has a value, by the readers of the standard library.
func shows(s *Snapshot, p place, value string) bool {
	if p.name == "draining" {
		return fmt.Sprint(s.Draining) == value
	}
	var want any
	d := json.NewDecoder(strings.NewReader(value))
	d.UseNumber()
	if err := d.Decode(&want); err != nil {
		return false
	}
	found := false
	for d := json.NewDecoder(bytes.NewReader(s.CanonicalJSON())); !found; {
		d.UseNumber()
		token, err := d.Token()
		if err != nil {
			return false
		}
		found = token == want || sameNumber(token, want) || sameTime(token, want)
	}
	return true
}

// sameNumber compares a number in canonical form, which writes sizes as texts, with one of a
// payload.
func sameNumber(shown, want any) bool {
	n, isNumber := want.(json.Number)
	if !isNumber {
		return false
	}
	x, okX := new(big.Rat).SetString(fmt.Sprint(shown))
	y, okY := new(big.Rat).SetString(n.String())
	return okX && okY && x.Cmp(y) == 0
}

func sameTime(a, b any) bool {
	x, isX := a.(string)
	y, isY := b.(string)
	if !isX || !isY {
		return false
	}
	m, errM := time.Parse(time.RFC3339Nano, x)
	n, errN := time.Parse(time.RFC3339Nano, strings.ToUpper(y))
	return errM == nil && errN == nil && m.Equal(n)
}
