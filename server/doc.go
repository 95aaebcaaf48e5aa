// Package server assembles a node: it opens the packages below in order, serves the API, and closes
// everything again.
//
//	gRPC clients      HTTP clients                 other members       operators
//	     │                 │                             │                 │
//	grpc listener     http listener                raft listener      admin listener
//	     │            server/gateway               server/cluster     server/admin
//	     │                 │ in memory                   │                 │
//	     └────────┬────────┘                             │                 │
//	       chain (server/rpc), client             chain, member            │
//	       decode ─► in flight ─► metrics ─► errors to statuses ─► forward │
//	              └──────────────────┬───────────────────┘                 │
//	services: runs, events, snapshots, watch, audit, members               │
//	              │                            │                           │
//	       server/replica  ◄───────────────────┼───────────────────────────┘
//	       store, Raft, batcher, disk     projector
//
// A service has one package and a small interface of what it needs of the replica. Services do not
// import each other. services.go lists them; a new service is one line there.
//
// # Lifecycle
//
// Start opens, in this order:
//
//  1. the data directory with its lock, the metrics, and the watch of the disk's free space
//  2. all listeners, so that a port in use stops the node before it opens a database
//  3. the admin listener's server, with health and metrics
//  4. the connections between members; the node then founds, joins or rejoins its cluster
//  5. the replica: store, Raft, batcher
//  6. the projector, the signer, and the services
//  7. calls from other members (cluster.Attach)
//  8. the gRPC server, the gateway and the HTTP server, and the rest of the admin listener
//
// Every step that opens something registers what closes it. If a step fails, Start closes what is
// open and returns the error. Close first makes the health service NOT_SERVING, announces the
// shutdown to the cluster and transfers the leadership. It then ends the context Server.stopping,
// which ends the streams and the calls that wait, and joins the background loops. Last it runs the
// registered functions in reverse order: the HTTP and gRPC servers drain; the services, the
// projector, Raft and the store close; the lock is released.
//
// # Invariants
//
//   - A wire message becomes a validated domain type once, in its service. The packages below trust
//     it.
//   - Every call passes a chain: also a call over HTTP (D14), and a call that a member forwards.
//   - No call reaches a service before openServices has set it.
//   - Typed errors become statuses in one place, server/rpc/errors.go.
//   - Nothing reads the store after it is closed: services and the projector close before it.
package server
