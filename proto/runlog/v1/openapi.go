// Package runlogv1 is the public API, generated from the .proto files beside it.
package runlogv1

import _ "embed"

// OpenAPI describes the HTTP API (OpenAPI 2.0, JSON).
//
//go:embed openapi.swagger.json
var OpenAPI []byte
