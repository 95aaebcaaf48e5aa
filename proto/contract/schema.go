package contract

import (
	"fmt"
	"sync"

	"runlog/proto/contract/schema"
)

// Schema returns the JSON Schema of a known event type's payload, or of "EventWrite" or
// "EventRecord", as the server has it under /schemas. The bytes are the caller's.
func Schema(line Line, name string) ([]byte, bool) { return schema.Text(line.String(), name) }

// SchemaNames returns the names that Schema knows, sorted.
func SchemaNames(line Line) []string { return schema.Names(line.String()) }

// ruleTable holds the rules of payloads by line and type code.
type ruleTable [2][len(typeNames)]*schema.Rule

// payloadRules compiles the schemas of payloads at first use, which takes about a millisecond. A
// schema that does not compile is a defect of the build; tests find it.
var payloadRules = sync.OnceValue(func() *ruleTable {
	var table ruleTable
	for _, line := range []Line{Line2, Line11} {
		for code, name := range typeNames {
			if name == "" {
				continue
			}
			text, _ := Schema(line, name)
			r, err := schema.Compile(text)
			if err != nil {
				panic(fmt.Sprintf("contract: schema %s of line %s: %v", name, line, err))
			}
			table[line][code] = r
		}
	}
	return &table
})

// payloadRule returns the rule of a known type's payload, and nil for an unknown type (ENV-6).
func payloadRule(line Line, eventType string) *schema.Rule {
	return payloadRules()[line][TypeCode(eventType)]
}
