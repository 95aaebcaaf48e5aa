// Package bench measures how fast a system takes appends, compared with the limits of the machine.
//
//	limits     fsync, seq-write ─────────┐
//	           grpc-echo, grpc-stream, … ┤                   ┌─ ratios: workload ÷ limit
//	                                     ├─▶ Result, … ─▶ Report ─▶ tables, JSON, SVG
//	workloads  append-unary, … ──────────┘                   └─ the machine they were taken on
//	             │ on each System in turn
//	             ▼
//	           target: a runlog node (Remote, Node) or several (Cluster), or a peer of bench/peers
//
// A figure of one machine says little about another one. So every round first measures the limits
// of the machine, and each workload is reported as a multiple of them: durable small and large
// writes (fsync, seq-write), and a bare gRPC call or stream with the same size and concurrency.
//
// Data flows one way: load makes it, target takes it, bench measures, report prints.
//
// # How a workload is driven
//
// A source makes requests and checks each answer. It is an error if this very call has not stored
// an event, or if a duplicate gets another answer than the first time. Errors are counted by
// reason, also in the warm-up, and their calls are not in the figures. A lane keeps one call in
// flight, or a stream full of them; the loop paces the lanes:
//
//	│◀─ warm-up ─▶│◀──────── duration ────────▶│◀ stragglers ▶│
//	              │  calls that begin here count │              │
//	              │◀──────── the time they are divided by ─────▶│
//
// In a closed loop a lane makes its next call when it has room for one. Such a loop slows down with
// the system: its latencies omit the wait of calls that would arrive at a fixed rate (coordinated
// omission). Read them as the latency with this many callers. In an open loop calls are due at a
// fixed rate, and each is measured from its due time, however late it began.
//
// A workload with more than one loop has a measure function of its own: watch, lag, rebuild and
// recovery drive their lanes several times, and use the node's admin listener or kill the node in
// between. failover and transfer drive theirs once, while other nodes of a cluster become the
// leader.
package bench
