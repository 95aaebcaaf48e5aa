// Package sim runs a whole cluster in one bubble of fake time (testing/synctest), attacks it, and
// checks what its clients saw. The nodes are the servers that cmd/runlog starts, with their
// gateways, batchers, Raft, Pebble and projectors. Only their file system, network and clock are
// simulated.
//
//	Plan (seed) ──► faults, scenarios ──► disks, clocks, network, power
//	                                         │
//	                                nodes ◄──┴──► workload.Clients ──► history ─┐
//	                                  └────────── finals, after all faults ─────┴──► history.Check
//
// The clients are those of server/servertest/workload, over connections of this network. Package
// procs runs the same clients against processes.
//
// # What is simulated
//
//   - Disks (disk.go, crashfs.go, clean.go, rot.go): Pebble's crashable memory file system. A loss
//     of power takes all, some or nothing of what was not synced, by blocks and by names. A sync
//     can fail and leave the log's pages clean, as Linux does. A disk can be full or slow, and bits
//     flip.
//   - Network (package network): streams between hosts. Each direction has a latency. It can be
//     cut one way or both, slowed, refused, or reset; after a reset, what was sent may still
//     arrive.
//   - Clocks (clock.go): each node's clock has a skew, a drift, and jumps. Timers are the bubble's
//     and run right.
//   - Power (node.go): goroutines cannot be killed. A node that loses its power keeps running as a
//     ghost until it is closed: on a copy of its disk that no later life reads, without
//     connections.
//   - Operators (operator.go, replace.go, held.go): restart nodes, transfer the leadership, rotate
//     the signing key, replace a node whose disk is lost, and release a cluster that was restored.
//
// # Faults and scenarios
//
// A fault of a plan (plan.go) happens at a fixed time, to fixed nodes, for a fixed duration. Some
// states need several faults in an order that depends on the cluster; independent faults lead there
// once in minutes. A scenario (scenario.go) is such a sequence: its steps wait for the cluster, its
// roles go to the leader and to the others in the plan's order. It is an entry of the plan like a
// fault, so that it can be kept, left out and repeated. Scenarios have a draw of their own: the
// faults of a seed are the same with them and without.
//
// # What is not simulated
//
// Faults that end a process instead of a call: Pebble's Fatalf over its list of files. Panics of
// hashicorp/raft over term and vote end a goroutine here (wouldPanic). A disk fails only while its
// node serves, not while it starts: Pebble then leaves a goroutine behind, and the bubble would
// never be empty. Package procs tests these, and processes that are paused.
//
// # Traps
//
// Fake time advances when every goroutine of the bubble waits for a channel, a timer or a condition
// variable. A goroutine that waits for a mutex does not count. If a goroutine waits for time or for
// another node while it holds a mutex that another one needs, time stands still forever. The same
// rule helps on a real node: such a mutex makes callers wait beyond their deadlines. Libraries have
// such mutexes too: a gRPC stream that sends and receives at the same time must call Context first,
// which ends gRPC's own retries.
//
// A plan is a function of its seed. A run is nearly one: the Go scheduler, select and maps draw
// too. The Makefile's verb runs one thread without preemption; there most failures repeat.
package sim
