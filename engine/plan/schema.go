package plan

import _ "embed"

//go:embed schema.json
var schema string

// Schema returns the JSON Schema (draft 2020-12) of plans of the current version. It describes
// their structure; Parse also compares the steps with each other, and looks for secrets.
func Schema() string { return schema }
