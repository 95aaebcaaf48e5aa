package gateway

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestOpenAPI validates the description of the API with the schema of OpenAPI 3.1
// (https://spec.openapis.org/oas/3.1/schema/2022-10-07), and checks what the schema does not: that
// references exist, and that everything is described.
func TestOpenAPI(t *testing.T) {
	text, err := os.ReadFile("testdata/openapi-3.1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi.json", schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(runlogv1.OpenAPI))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiled.Validate(doc); err != nil {
		t.Error(err)
	}
	root := doc.(map[string]any)
	info := root["info"].(map[string]any)
	if root["openapi"] != "3.1.0" || info["title"] == "" || info["version"] == "" || info["description"] == "" {
		t.Errorf("openapi %v, info %v", root["openapi"], info)
	}
	schemas := root["components"].(map[string]any)["schemas"].(map[string]any)
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				if _, exists := schemas[strings.TrimPrefix(ref, "#/components/schemas/")]; !exists {
					t.Errorf("%s: %s does not exist", at, ref)
				}
			}
			for name, member := range v {
				walk(at+"/"+name, member)
			}
		case []any:
			for _, element := range v {
				walk(at, element)
			}
		}
	}
	walk("", root)
	// Over HTTP, payloads and extensions are objects (ENV-8).
	for _, name := range []string{"EventWrite", "EventRecord"} {
		members := schemas[name].(map[string]any)["properties"].(map[string]any)
		for _, member := range []string{"payload", "extensions"} {
			if described, _ := members[member].(map[string]any); described["type"] != "object" || described["description"] == nil {
				t.Errorf("%s.%s is described as %v", name, member, members[member])
			}
		}
	}
	ids := map[any]bool{}
	for path, methods := range root["paths"].(map[string]any) {
		for method, o := range methods.(map[string]any) {
			operation := o.(map[string]any)
			if operation["summary"] == "" || operation["description"] == "" || operation["operationId"] == nil || ids[operation["operationId"]] {
				t.Errorf("%s %s is not described, or its operationId is not its own: %v", method, path, operation)
			}
			ids[operation["operationId"]] = true
			failed, _ := json.Marshal(operation["responses"].(map[string]any)["default"])
			if !strings.Contains(string(failed), "#/components/schemas/Error") {
				t.Errorf("%s %s does not describe its errors: %s", method, path, failed)
			}
			parameters, _ := operation["parameters"].([]any)
			for _, p := range parameters {
				if name := p.(map[string]any)["name"]; strings.Contains(path, "{"+name.(string)+"}") != (p.(map[string]any)["in"] == "path") {
					t.Errorf("%s %s: parameter %v is not where the path has it", method, path, name)
				}
			}
		}
	}
	if len(ids) < 20 {
		t.Errorf("%d operations", len(ids))
	}
}
