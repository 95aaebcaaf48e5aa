package contract

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

// The JSON Schemas (draft 2020-12) of both lines: one file a known event type, for its payload
// (ENV-5), and EventWrite and EventRecord for the envelope. They are the truth. What runs over
// payloads is compiled from them, and tests hold it against a JSON Schema library. docs/schemas.md
// shows them.
//
//go:embed schemas/*/*.json
var schemaFiles embed.FS

// Schema returns the JSON Schema of a known event type's payload, or of "EventWrite" or
// "EventRecord", as it is served under /schemas. The bytes are the caller's.
func Schema(line Line, name string) ([]byte, bool) {
	b, err := schemaFiles.ReadFile("schemas/" + line.String() + "/" + name + ".json")
	return b, err == nil
}

// SchemaNames returns the names for which Schema has an answer, sorted.
func SchemaNames(line Line) []string {
	files, err := schemaFiles.ReadDir("schemas/" + line.String())
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), path.Ext(f.Name())))
	}
	slices.Sort(names)
	return names
}

// schemaPath is where the server serves a schema.
func schemaPath(line Line, name string) string {
	return "/schemas/" + line.String() + "/" + name + ".json"
}

// ruleTable holds the rules of payloads by line and type code.
type ruleTable [2][len(typeNames)]*rule

// payloadRules compiles the schemas of payloads when they are first needed, which takes about a
// millisecond. A schema that cannot be compiled is a defect of the build, which tests find.
var payloadRules = sync.OnceValue(func() *ruleTable {
	var table ruleTable
	for _, line := range []Line{Line2, Line11} {
		for code, name := range typeNames {
			if name == "" {
				continue
			}
			text, _ := Schema(line, name)
			r, err := compileSchema(text)
			if err != nil {
				panic(fmt.Sprintf("contract: schema %s of line %s: %v", name, line, err))
			}
			table[line][code] = r
		}
	}
	return &table
})

// payloadRule returns the rule of a known type's payload, nil for an unknown type (ENV-6).
func payloadRule(line Line, eventType string) *rule {
	return payloadRules()[line][TypeCode(eventType)]
}
