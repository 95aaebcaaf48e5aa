// Package server is the edge: gRPC services, the HTTP gateway with Server-Sent Events, limits,
// health, metrics. It puts the rooms below together into a node and takes them down again.
//
//	gRPC ──────────────┐
//	                   ├─► parse and validate (proto/contract) ─► encode (storage) ─► batch ─► raft
//	HTTP ─► gateway ───┘                                                                        │
//	     in memory, the                 answers ◄─ storage.Outcome ◄────────────────────────────┘
//	     same interceptors (D14)        reads   ◄─ storage.Store, projector.Projector
//
// A wire message becomes a validated domain type once, at the gate; the rooms below trust it. Their
// typed errors become statuses in one place, status.go.
package server
