package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(Schema()))
	if err == nil {
		err = c.AddResource("plan.json", doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaPLAN4: the published schema takes the plans that Parse takes, and refuses what Parse
// refuses for its structure.
func TestSchemaPLAN4(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	takes := func(body string) bool {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		return err == nil && s.Validate(doc) == nil
	}
	const contract = `{"executor":"x","inputs":["a"],"outputs":[],"verification":"operator_attest"}`
	full := string(planOf(`{"stepId":"a","type":"http","class":"data","dispatch":{"taskQueue":"q"},"secretRefs":["env:A"],"inputs":{"x":1},` +
		`"retry":{"maxAttempts":2,"initial":"1s","max":"1m30s"},"timeout":"1.5h"},` +
		`{"stepId":"b","type":"compute","dependsOn":["a"],"computeContract":` + contract + `,"when":[{"step":"a","output":"/x","in":[1],"exists":true}]}`))
	files, err := filepath.Glob("testdata/walks/*.json")
	if err != nil {
		t.Fatal(err)
	}
	const steps = `"steps"`
	good := []string{full, strings.Replace(full, steps, `"onFailure":"WAIT",`+steps, 1), strings.Replace(full, steps, `"onFailure":"FAIL",`+steps, 1)}
	for _, file := range files {
		body, err := os.ReadFile(file)
		var story struct{ Plan json.RawMessage }
		if err == nil {
			err = json.Unmarshal(body, &story)
		}
		if err != nil {
			t.Fatal(err)
		}
		good = append(good, string(story.Plan))
	}
	for _, body := range good {
		if _, _, err := Parse([]byte(body), Options{}); err != nil || !takes(body) {
			t.Errorf("%.200s: %v; the schema takes it: %t", body, err, takes(body))
		}
	}
	for _, change := range [][2]string{
		{`"planId": "p"`, `"planId": 1`}, {`"planId": "p", `, ``}, {`"planId": "p"`, `"planId": ""`}, {`"planId": "p"`, `"planId": "p|q"`},
		{`"planVersion"`, `"version"`}, {`"v1.2"`, `"newest"`}, {steps, `"onFailure":"wait",` + steps}, {steps, `"onFailure":null,` + steps}, {`"v1.2"`, `"v2.0"`}, {`"class":"data"`, `"class":"fast"`},
		{`{"taskQueue":"q"}`, `{}`}, {`"env:A"`, `"A"`}, {`"env:A"`, `"env:A","env:A"`}, {`"maxAttempts":2`, `"maxAttempts":0`},
		{`"maxAttempts":2`, `"maxAttempts":1.5`}, {`"1.5h"`, `"soon"`}, {`"1.5h"`, `90`}, {`"type":"compute"`, `"type":"noop"`},
		{`,"computeContract":` + contract, ``}, {`"operator_attest"`, `"machine"`}, {`"inputs":["a"],`, ``}, {`"outputs":[]`, `"outputs":[""]`},
		{`"executor":"x"`, `"executor":"x","extra":1`}, {`["a"],"computeContract"`, `["a","a"],"computeContract"`},
		{`,"output":"/x","in":[1],"exists":true`, ``}, {`"/x"`, `"x"`}, {`[1]`, `[]`}, {`true`, `"yes"`}, {`{"step":"a",`, `{"steps":"a",`},
	} {
		body := strings.Replace(full, change[0], change[1], 1)
		if body == full {
			t.Fatalf("%s is not in the plan", change[0])
		}
		if _, _, err := Parse([]byte(body), Options{}); err == nil || takes(body) {
			t.Errorf("%s for %s: Parse: %v; the schema takes it: %t", change[1], change[0], err, takes(body))
		}
	}
}
