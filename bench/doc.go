// Package bench measures how fast a node takes appends, next to what the machine itself can do.
//
//	limits     grpc-echo ─┐
//	           fsync ─────┤                       ┌─ ratios: workload ÷ limit
//	                      ├─▶ Result, Result, … ──┤
//	workloads  append-unary ┤                     └─ the machine they were taken on
//	           append-batch ┘
//
// A figure of one machine says little about another one. So every run first measures two limits of the
// machine, and each workload is reported as a multiple of them: a bare gRPC call that carries as much
// (grpc-echo), and a small write made durable (fsync).
//
// # How a workload is driven
//
// Everything here is a closed loop: a fixed number of callers, each of which makes its next call when the
// last one has been answered. Such a loop slows down with the server, so its latencies leave out what
// calls arriving at a fixed rate would have waited (coordinated omission). Read them as the latency at
// this many callers.
//
//	│◀─ warm-up ─▶│◀──────── duration ────────▶│◀ stragglers ▶│
//	              │  calls that begin here count │              │
//	              │◀──────── the time they are divided by ─────▶│
//
// Every answer is checked: an event that was not stored by this very call is an error, and errors are
// counted by reason, in the warm-up too.
package bench
