// Package runlogv1 is the public API, generated from the .proto files beside it.
package runlogv1

import _ "embed"

// OpenAPI describes the HTTP API (OpenAPI 3.1, JSON).
//
//go:embed openapi.json
var OpenAPI []byte
