// Package gateway serves the API over HTTP: JSON through grpc-gateway, Server-Sent Events for
// streams, the JSON Schemas, and the description of the routes.
//
//	HTTP ──► size, type and form of the body ──► grpc-gateway ─┬─► a call: the chain, directly
//	                                                           └─► a stream: in memory, to gRPC
//
// Every call passes the chain that a call over gRPC passes (D14). A stream needs the flow control
// of a gRPC connection; any other call is a function call (rpc.Direct, ADR 30).
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
