// Package gateway serves the API over HTTP: JSON by grpc-gateway, Server-Sent Events for streams, the
// JSON Schemas and the description of the routes.
//
//	HTTP ──► size, type and form of the body ──► grpc-gateway ──► in-memory connection ──► gRPC server
//
// The gateway is a gRPC client in the same process, so that every call passes the same chain as any
// other (D14).
package gateway
