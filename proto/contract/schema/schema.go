// Package schema holds the JSON Schemas (draft 2020-12) of the contract and checks payloads against
// them.
//
//	1.1/*.json, 2.0.0/*.json ── Text, Names, Path ──► served under /schemas
//	         │
//	         └── Compile ──► Rule ── Accepts ──► yes, or look closer
//	                               └ Faults ───► every fault, with its JSON Pointer
//
// Each line of the contract has one file for each known event type, for its payload (ENV-5), and
// EventWrite and EventRecord for the envelope. The files are the source of truth: a [Rule] is
// compiled from one, and tests compare it with a JSON Schema library, which the binary does not
// need.
//
// Invariants:
//   - [Compile] refuses every keyword that a Rule cannot express, so a schema never says more than
//     its Rule checks.
//   - [Rule.Accepts] reads the payload once and does not allocate. It may fail to accept a valid
//     payload; [Rule.Faults] decides then.
//   - A Rule is immutable and safe for concurrent use.
package schema

import (
	"embed"
	"path"
	"slices"
	"strings"
)

//go:embed 1.1/*.json 2.0.0/*.json
var files embed.FS

// Text returns the JSON Schema of a known event type's payload, or of "EventWrite" or
// "EventRecord", in the line of a contractVersion. The bytes are the caller's.
func Text(version, name string) ([]byte, bool) {
	b, err := files.ReadFile(version + "/" + name + ".json")
	return b, err == nil
}

// Names returns the names that Text knows, sorted.
func Names(version string) []string {
	entries, err := files.ReadDir(version)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, f := range entries {
		names = append(names, strings.TrimSuffix(f.Name(), path.Ext(f.Name())))
	}
	slices.Sort(names)
	return names
}

// Path returns the HTTP path of a schema.
func Path(version, name string) string { return "/schemas/" + version + "/" + name + ".json" }
