// Package peer owns the connections between the nodes of a cluster: one TCP port carries Raft's own
// stream and gRPC between nodes. Each connection begins, after TLS where that is used, with a
// handshake in which both ends say who they are, and in which either may refuse the other and say
// why.
//
//	dialling end                                accepting end
//	Dial ── TCP ── TLS 1.3, both certificates ──► accept loop, at most 64 handshakes under way
//	     ── hello: kind, identity, who is wanted ──►  certificate, format, cluster, Admit
//	     ◄── welcome: identity ───────────────────
//	 certificate, format, cluster, Admit
//	     ── go ──────────────────────────────────►  Listener(kind).Accept
//
// In the place of each message there may be a refusal, which ends the connection. docs/formats.md
// has the bytes.
//
// Invariants: a connection is handed out at either end only after both ends judged each other and
// agreed; nothing of the stream behind the handshake is read by it; what either end may cost the
// other before that is bounded in bytes, time and number. Certificates are judged after the TLS
// handshake and not within, so that a refusal can say why: an alert of TLS has a number and no
// text. Until then nothing but a refusal goes either way.
//
// Connections that were handed out belong to whom they were handed to, and outlive Close.
package peer
