package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// wantTyped fails a test unless an error is a Failure whose JSON an event may have.
func wantTyped(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[Failure](err)
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	body, err := e.MarshalJSON()
	if err != nil || !json.Valid(body) || len(body) > 60<<10 || !bytes.Contains(body, []byte(`"code":"`+e.Code()+`"`)) {
		t.Fatalf("%d bytes, %v: %.300s", len(body), err, body)
	}
}

// FuzzPlanPLAN4: any text is a plan that the schema takes and that can be walked to its end, or is
// refused with a typed error.
func FuzzPlanPLAN4(f *testing.F) {
	schema := compiled(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		p, _, err := Parse(body, Options{})
		if err != nil {
			wantTyped(t, err)
			return
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err == nil {
			err = schema.Validate(doc)
		}
		if err != nil {
			t.Fatalf("the schema refuses a plan that was read: %v", err)
		}
		rng := rand.New(rand.NewPCG(uint64(len(body)), 1))
		w := NewWalk(p)
		n := 0
		for d, ok := w.Next(); ok; d, ok = w.Next() {
			n++
			if d.Kind == Skip {
				continue
			}
			r := Result{[]Status{Success, Success, Failed}[rng.IntN(3)], json.RawMessage(`{"x":1}`)}
			if err := w.Done(d.Step.ID, r); err != nil {
				t.Fatal(err)
			}
		}
		if _, ended := w.Ended(); !ended || n != len(p.Steps) {
			t.Fatalf("%d of %d steps were decided", n, len(p.Steps))
		}
	})
}

// FuzzRefPLAN1: any text is a reference that is valid, and the same after a round trip, or is
// refused with a typed error.
func FuzzRefPLAN1(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRef(body)
		if err != nil {
			wantTyped(t, err)
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("read, and not valid: %v", err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseRef(text); err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v after a round trip is %+v: %v", r, again, err)
		}
	})
}

// FuzzContractATT1: any contract of a compute step is read as it is written again, or is refused
// with a typed error.
func FuzzContractATT1(f *testing.F) {
	const step = `{"stepId": "a", "type": "compute", "computeContract": `
	f.Fuzz(func(t *testing.T, value []byte) {
		p, _, err := Parse(planOf(step+string(value)+`}`), Options{})
		if err != nil {
			wantTyped(t, err)
			return
		}
		c := p.Steps[0].Contract
		if c == nil || c.Verification != OperatorAttest || c.Executor == "" || c.Inputs == nil || c.Outputs == nil || c.TimeoutMinutes < 0 {
			t.Fatalf("contract %+v", c)
		}
		text, err := marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := Parse(planOf(step+string(text)+`}`), Options{})
		if err != nil && len(text) <= maxContract || err == nil && !reflect.DeepEqual(again.Steps[0].Contract, c) {
			t.Fatalf("%+v is written as %s: %v", c, text, err)
		}
	})
}

// FuzzMigrationPLAN3: whatever the versions, the path and what a migration leaves, a plan of the
// current version comes out, or a typed error.
func FuzzMigrationPLAN3(f *testing.F) {
	f.Fuzz(func(t *testing.T, version, path, name string, left []byte) {
		v := NewVersions(Version{1, 5})
		leave := func(doc map[string]json.RawMessage) (map[string]json.RawMessage, error) {
			switch {
			case name == "nothing":
				return nil, nil //nolint:nilnil // What a defect of a migration leaves.
			case name == "fails":
				return doc, errors.New("it fails")
			case name != "":
				doc[name] = left
			}
			return doc, nil
		}
		for _, hop := range [][2]Version{{{1, 2}, {1, 3}}, {{1, 3}, {1, 4}}, {{1, 2}, {1, 4}}, {{1, 4}, {1, 5}}} {
			if err := v.Register(hop[0], hop[1], leave); err != nil {
				t.Fatal(err)
			}
		}
		text, err := json.Marshal(version)
		if err != nil {
			t.Fatal(err)
		}
		body := `{"schemaVersion": ` + string(text) + `, "planId": "p", "planVersion": "1", "steps": [{"stepId": "a", "type": "noop"}]}`
		p, _, err := Parse([]byte(body), Options{Versions: v, Path: path})
		if err != nil {
			wantTyped(t, err)
			return
		}
		from, err := ParseVersion(version)
		if err != nil || from.Major != 1 || from.Minor < 2 || from.Minor > 5 || p.SchemaVersion != from || len(p.Steps) == 0 {
			t.Fatalf("%q is read as %v: %v", version, p.SchemaVersion, err)
		}
		if again, err := ParseVersion(from.String()); err != nil || again != from {
			t.Fatalf("%v is written as %s", from, from)
		}
	})
}

// FuzzFetchPLAN2: whatever a store has, only the bytes of the digest are a plan. The rest are typed
// errors. pad makes the bytes as many as are allowed, or one more.
func FuzzFetchPLAN2(f *testing.F) {
	body := planOf(`{"stepId":"a","type":"noop"}`)
	bomb := zipped(f, make([]byte, MaxBytes+1))
	f.Add(bomb, true, true, byte(0), int64(0))
	f.Add(zipped(f, bytes.Repeat(body, MaxBytes/len(body))), true, false, byte(0), int64(0))
	f.Fuzz(func(t *testing.T, held []byte, compressed, honest bool, pad byte, size int64) {
		if n := map[byte]int{1: MaxBytes, 2: MaxBytes + 1}[pad]; n > len(held) {
			held = append(held[:len(held):len(held)], bytes.Repeat([]byte(" "), n-len(held))...)
		}
		ref := refOf(body)
		ref.SizeBytes = size
		plain := held
		if compressed {
			ref.Compression = CompressionGzip
			plain, _ = gunzip(held)
		}
		if honest {
			ref.SHA256 = digestOf(plain)
		}
		fetcher, err := NewFetcher(FetcherOptions{Source: holding(held)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := fetcher.Fetch(t.Context(), ref)
		if err != nil {
			wantTyped(t, err)
			if e, ok := errors.AsType[*IntegrityError](err); ok && e.Cause == nil && e.ActualSHA256 == ref.SHA256 {
				t.Fatalf("nothing differs: %v", err)
			}
			return
		}
		if digestOf(plain) != ref.SHA256 || len(plain) > MaxBytes || len(held) > MaxBytes || size != 0 && size != int64(len(plain)) || p.PlanID != ref.PlanID {
			t.Fatalf("%d bytes are the plan of %+v", len(plain), ref)
		}
	})
}

// FuzzConditionPLAN5: a condition of any output holds or not, whatever its white space, and a value
// is what it is equal to.
func FuzzConditionPLAN5(f *testing.F) {
	f.Fuzz(func(t *testing.T, condition, output string) {
		p, _, err := Parse(planOf(`{"stepId":"a","type":"noop"},{"stepId":"b","type":"noop","dependsOn":["a"],"when":[`+condition+`]}`), Options{})
		if err != nil {
			wantTyped(t, err)
			return
		}
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(output)) != nil {
			return
		}
		for i := range p.Steps {
			for _, c := range p.Steps[i].When {
				end := &Result{Success, json.RawMessage(output)}
				if c.holds(end) != c.holds(&Result{Success, compact.Bytes()}) {
					t.Fatalf("it holds of %s, or of %s", end.Output, compact.Bytes())
				}
				value, there := lookup(end.Output, c.Output)
				is := Condition{Step: c.Step, Output: c.Output, Equals: value}
				if there && !is.holds(end) {
					t.Fatalf("the value %s at %q is not itself", value, c.Output)
				}
			}
		}
	})
}
