// Package gateway serves the API over HTTP: JSON through grpc-gateway, Server-Sent Events for
// streams, the JSON Schemas, and the description of the routes.
//
//	HTTP ──► size, type and form of the body ──► grpc-gateway ──► in memory ──► gRPC server
//
// The gateway is a gRPC client in the same process, so that every call passes the chain of the gRPC
// server (D14).
//
// Lifecycle: Listen opens the in-memory connection, Dial connects to it, New makes the handler. The
// gateway has no goroutines of its own: the HTTP server closes first, then the connection.
//
// Invariants:
//
//   - The gateway refuses a request before it reads more than the limit of its body.
//
//   - Every error over HTTP has a reason of the contract.
package gateway
