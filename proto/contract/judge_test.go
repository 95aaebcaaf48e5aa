package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"runlog/proto/contract/jsontext"
	"runlog/proto/contract/schema"
	runlogv1 "runlog/proto/runlog/v1"
)

// judges are the embedded schemas as a JSON Schema library understands them, by "line/name".
// Formats are asserted; nothing is loaded from elsewhere.
var judges = sync.OnceValue(func() map[string]*jsonschema.Schema {
	return compileJudges(func(doc any) any { return doc })
})

// strictJudges are the same with each x-expected in force (ENV-9).
var strictJudges = sync.OnceValue(func() map[string]*jsonschema.Schema { return compileJudges(inForce) })

// inForce replaces each schema that has an x-expected by that.
func inForce(schema any) any {
	switch v := schema.(type) {
	case map[string]any:
		if expected, ok := v["x-expected"]; ok {
			return inForce(expected)
		}
		for name := range v {
			v[name] = inForce(v[name])
		}
	case []any:
		for i := range v {
			v[i] = inForce(v[i])
		}
	}
	return schema
}

func compileJudges(change func(doc any) any) map[string]*jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(noLoader{})
	var ids []string
	for _, line := range []Line{Line2, Line11} {
		for _, name := range SchemaNames(line) {
			text, _ := Schema(line, name)
			doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
			if err != nil {
				panic(err)
			}
			id := schemaID(line, name)
			if err := c.AddResource(id, change(doc)); err != nil {
				panic(err)
			}
			ids = append(ids, id)
		}
	}
	compiled := make(map[string]*jsonschema.Schema)
	for _, id := range ids {
		compiled[id] = c.MustCompile(id)
	}
	return compiled
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, errors.New("no loader for " + url) }

func schemaID(line Line, name string) string {
	return "https://runlog.invalid" + schema.Path(line.String(), name)
}

// judged asks the library about a JSON text: whether it is valid, and where it is not.
func judged(line Line, name string, text []byte) (valid bool, pointers []string) {
	return judgedBy(judges(), line, name, text)
}

func judgedBy(by map[string]*jsonschema.Schema, line Line, name string, text []byte) (valid bool, pointers []string) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	var fault *jsonschema.ValidationError
	if err := by[schemaID(line, name)].Validate(doc); err == nil {
		return true, nil
	} else if !errors.As(err, &fault) {
		panic(err)
	}
	return false, tidy(places(nil, fault))
}

// places gathers the JSON Pointers of what the library complains about. A missing member is at its
// own pointer, as runlog has it, and an anyOf at that of the object.
func places(to []string, e *jsonschema.ValidationError) []string {
	at := pointer(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			to = append(to, at+pointer([]string{name}))
		}
		return to
	case *kind.AnyOf:
		return append(to, at)
	}
	if len(e.Causes) == 0 {
		return append(to, at)
	}
	for _, cause := range e.Causes {
		to = places(to, cause)
	}
	return to
}

func pointer(steps []string) string {
	var b strings.Builder
	for _, step := range steps {
		b.WriteString("/" + pointerEscapes.Replace(step))
	}
	return b.String()
}

func tidy(pointers []string) []string {
	slices.Sort(pointers)
	return slices.Compact(pointers)
}

// failer is what the tests of testing and those of rapid have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// eventOf is a valid event of a type but for its payload.
func eventOf(line Line, eventType string, payload []byte) *runlogv1.EventWrite {
	return edited(func(w *runlogv1.EventWrite) {
		w.EventType, w.ContractVersion = eventType, line.String()
		if ScopeOf(eventType) == ScopeRun {
			w.StepId = ""
		}
		w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: payload}
	})
}

// checkAgainstJudge requires that what runs over bytes and the library, which sees what
// encoding/json makes of them, say the same about a payload of a known type: whether it is valid,
// and which pointers are not. It reports whether there was a JSON object to judge, and whether it
// raises not even a remark.
func checkAgainstJudge(t failer, line Line, eventType string, payload []byte) (object, valid, expected bool) {
	t.Helper()
	r := payloadRule(line, eventType)
	accepted := r.Accepts(payload)
	if _, fault := jsontext.CheckObject(payload, MaxDepth); fault != 0 {
		if accepted {
			t.Fatalf("%s %s: took %q, which is no object: %s", line, eventType, payload, fault)
		}
		return false, false, false
	}
	valid, want := judged(line, eventType, payload)
	expected, wantAll := judgedBy(strictJudges(), line, eventType, payload)
	bad, remarks, unshown := r.Faults(payload, MaxViolations+1)
	if accepted && (!expected || len(unshown) > 0) || (len(bad) == 0) != valid || (len(bad)+len(remarks) == 0) != expected {
		t.Fatalf("%s %s: %q: accepted %v with violations %v and remarks %v; the judge says %v %v, and as expected %v %v",
			line, eventType, payload, accepted, bad, remarks, valid, want, expected, wantAll)
	}
	if len(bad) <= MaxViolations && len(remarks) <= MaxViolations {
		got, gotAll := pathsOf(bad), pathsOf(append(slices.Clone(bad), remarks...))
		if !slices.Equal(got, want) || !slices.Equal(gotAll, wantAll) {
			t.Fatalf("%s %s: %q: violations at %q, with remarks at %q; the judge has them at %q and %q", line, eventType, payload, got, gotAll, want, wantAll)
		}
	}
	checkValidateAgrees(t, eventOf(line, eventType, payload), bad, append(remarks, unshown...))
	return true, valid, expected
}

func pathsOf(faults []schema.Fault) []string {
	var paths []string
	for _, f := range faults {
		paths = append(paths, f.Path)
	}
	return tidy(paths)
}

// checkValidateAgrees requires that Validate reports the faults and remarks of the payload's rule.
// The envelope already names what a 1.1 RunStarted takes from its payload, so that adds no
// violation.
func checkValidateAgrees(t failer, w *runlogv1.EventWrite, faults, remarks []schema.Fault) {
	t.Helper()
	var want []Violation
	for _, f := range faults {
		want = append(want, Violation{Field: "payload" + f.Path, Reason: ReasonSchemaValidationFailed, Description: f.Description})
	}
	if len(w.GetPayloadJson()) > DefaultMaxPayloadBytes {
		return
	}
	e, bad := Validate(w, Options{})
	if !slices.Equal(bad, want) || len(bad) == 0 && !bytes.Equal(e.Payload, w.GetPayloadJson()) {
		t.Fatalf("%s: Validate says %v, its rule %v", w.GetPayloadJson(), bad, want)
	}
	var warnings []Warning
	for _, f := range remarks[:min(len(remarks), maxWarnings)] {
		warnings = append(warnings, Warning{"payload" + f.Path, f.Description})
	}
	if len(bad) == 0 && !slices.Equal(e.Warnings, warnings) {
		t.Fatalf("%s: Validate warns of %v, its rule of %v", w.GetPayloadJson(), e.Warnings, warnings)
	}
}

// knownTypes are the types that have a schema.
var knownTypes = typeNames[1:]

func TestENV5EveryKnownTypeHasSchemas(t *testing.T) {
	want := append(slices.Clone(knownTypes), "EventRecord", "EventWrite")
	slices.Sort(want)
	for _, line := range []Line{Line2, Line11} {
		if got := SchemaNames(line); !slices.Equal(got, want) {
			t.Errorf("%s: %v", line, got)
		}
		for _, name := range want {
			text, ok := Schema(line, name)
			var doc map[string]any
			if err := json.Unmarshal(text, &doc); !ok || err != nil {
				t.Fatalf("%s %s: %v", line, name, err)
			}
			if doc["$id"] != schemaID(line, name) || doc["$schema"] != "https://json-schema.org/draft/2020-12/schema" || doc["type"] != "object" {
				t.Errorf("%s %s: says it is %v by %v", line, name, doc["$id"], doc["$schema"])
			}
			if doc["additionalProperties"] != nil && (name != "EventWrite" || line != Line2) {
				t.Errorf("%s %s: extra fields are not free", line, name)
			}
			if judges()[schemaID(line, name)] == nil {
				t.Errorf("%s %s: not compiled", line, name)
			}
		}
	}
	for _, name := range []string{"", "Custom", "../2.0.0/StepFailed", "StepFailed.json", "/StepFailed", "*"} {
		if _, ok := Schema(Line11, name); ok {
			t.Errorf("%q has a schema", name)
		}
	}
}

// The definitions that several schemas of a line repeat, so that each file stands alone, are the
// same.
func TestENV5SchemasShareTheirDefinitions(t *testing.T) {
	for _, line := range []Line{Line2, Line11} {
		first := make(map[string]string)
		for _, name := range knownTypes {
			text, _ := Schema(line, name)
			var doc struct {
				Defs map[string]json.RawMessage `json:"$defs"`
			}
			if err := json.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			for def, body := range doc.Defs {
				if other, ok := first[def]; ok && other != string(body) {
					t.Errorf("%s %s: %s differs from the one before it", line, name, def)
				}
				first[def] = string(body)
				if !bytes.Contains(text, []byte(`"#/$defs/`+def+`"`)) {
					t.Errorf("%s %s: %s is not used", line, name, def)
				}
			}
		}
	}
}
