package schema

import (
	"strings"
	"testing"
)

// Compile refuses a schema that demands more than a Rule can check.
func TestENV5SchemasOutsideTheSubset(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":               `{`,
		"no object":             `{"type":["object","string"]}`,
		"says nothing":          `{}`,
		"unknown keyword":       `{"type":"object","maxProperties":3}`,
		"unknown type":          `{"type":"object","properties":{"a":{"type":"text"}}}`,
		"boolean schema":        `{"type":"object","properties":{"a":false}}`,
		"number in enum":        `{"type":"object","properties":{"a":{"enum":[1]}}}`,
		"empty enum":            `{"type":"object","properties":{"a":{"enum":[]}}}`,
		"enum of no string":     `{"type":"object","properties":{"a":{"type":"object","enum":["a"]}}}`,
		"escaped word":          `{"type":"object","properties":{"a":{"const":"\""}}}`,
		"long minLength":        `{"type":"object","properties":{"a":{"minLength":2}}}`,
		"other minimum":         `{"type":"object","properties":{"a":{"minimum":1}}}`,
		"other pattern":         `{"type":"object","properties":{"a":{"pattern":"^a"}}}`,
		"format alone":          `{"type":"object","properties":{"a":{"format":"date-time"}}}`,
		"required, not told of": `{"type":"object","required":["a"]}`,
		"anyOf of other things": `{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"],"minimum":0}]}`,
		"anyOf of nothing":      `{"type":"object","anyOf":[{}]}`,
		"anyOf of null":         `{"type":"object","anyOf":[null]}`,
		"dangling reference":    `{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}}`,
		"foreign reference":     `{"type":"object","properties":{"a":{"$ref":"b.json"}},"$defs":{"b":{}}}`,
		"reference and more":    `{"type":"object","properties":{"a":{"$ref":"#/$defs/b","type":"string"}},"$defs":{"b":{}}}`,
		"cycle":                 `{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"items":{"$ref":"#/$defs/b"}}}}`,
		"inner definitions":     `{"type":"object","properties":{"a":{"$defs":{}}}}`,
		"member name":           `{"type":"object","properties":{"a/b":{}}}`,
		"long member name":      `{"type":"object","properties":{"` + strings.Repeat("n", 32) + `":{}}}`,
		"faulty items":          `{"type":"object","properties":{"a":{"items":{"minimum":1}}}}`,
		"faulty type":           `{"type":7}`,
	} {
		if r, err := Compile([]byte(text)); err == nil {
			t.Errorf("%s: compiled to %+v", name, r)
		}
	}
	if _, err := Compile([]byte(`{"type":"object","properties":{"a":{"type":"array"}},"anyOf":[{"required":["a"]}]}`)); err != nil {
		t.Error(err)
	}
}
