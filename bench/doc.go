// Package bench measures how fast a system takes appends, next to what the machine itself can do.
//
//	limits     fsync, seq-write ─────────┐
//	           grpc-echo, grpc-stream, … ┤                   ┌─ ratios: workload ÷ limit
//	                                     ├─▶ Result, … ─▶ Report ─▶ tables, JSON, SVG
//	workloads  append-unary, … ──────────┘                   └─ the machine they were taken on
//	             │ on each System in turn
//	             ▼
//	           target: a runlog node (Remote, Node) or several (Cluster), or a peer of bench/peers
//
// A figure of one machine says little about another one. So every round measures the limits of the
// machine first, and each workload is reported as a multiple of them: small and large writes made
// durable (fsync, seq-write), and a bare gRPC call or stream that carries as much, with as many at
// a time.
//
// Data flows one way: load makes it, target takes it, bench measures, report prints.
//
// # How a workload is driven
//
// A source makes up requests and checks each answer: an event that was not stored by this very
// call, or a duplicate that was not answered as it was the first time, is an error. Errors are
// counted by reason, in the warm-up too, and left out of the figures. A lane keeps one call on its
// way, or a stream full of them; the loop paces the lanes:
//
//	│◀─ warm-up ─▶│◀──────── duration ────────▶│◀ stragglers ▶│
//	              │  calls that begin here count │              │
//	              │◀──────── the time they are divided by ─────▶│
//
// In a closed loop a lane makes its next call when it has room for one. Such a loop slows down with
// the system, so its latencies leave out what calls arriving at a fixed rate would have waited
// (coordinated omission): read them as the latency with this many callers. In an open loop calls
// are due at a fixed rate, and each is measured from when it was due, however late it could begin.
//
// A workload that is more than one loop has a measure of its own: watch, lag, rebuild and recovery
// drive their lanes several times, and ask the node's admin listener or kill it in between.
// failover and transfer drive theirs once, and have other nodes of a cluster lead meanwhile.
package bench
