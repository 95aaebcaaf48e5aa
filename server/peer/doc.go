// Package peer owns the connections between the nodes of a cluster: one TCP port carries Raft's own
// stream and gRPC between nodes. After TLS, if enabled, each connection begins with a handshake.
// Both ends send their identity, and either may refuse the other with a reason.
//
//	dialling end                                accepting end
//	Dial ── TCP ── TLS 1.3, both certificates ──► accept loop, at most 64 handshakes under way
//	     ── hello: kind, identity, wanted node ────►  certificate, format, cluster, Admit
//	     ◄── welcome: identity ───────────────────
//	 certificate, format, cluster, Admit
//	     ── go ──────────────────────────────────►  Listener(kind).Accept
//
// In the place of each message there may be a refusal, which ends the connection. docs/formats.md
// has the bytes.
//
// Invariants: either end hands out a connection only after both ends have accepted each other. The
// handshake reads no byte of the stream behind it. The cost of an unauthenticated peer is bounded
// in bytes, time and number. Certificates are checked after the TLS handshake, not within it, so
// that a refusal can have a text: a TLS alert has only a number. Until then either end sends
// refusals only.
//
// The receiver of a connection owns it. The connection outlives Close.
package peer
