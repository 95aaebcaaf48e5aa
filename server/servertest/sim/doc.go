// Package sim lets a whole cluster live in one bubble of fake time (testing/synctest), attacks it,
// and checks what its clients saw. Nothing of the cluster is made for it: they are servers as
// cmd/runlog starts them, with their gateways, batchers, Raft, Pebble and projectors, that were
// given another file system, network and clock.
//
//	Plan (seed) ──► faults ──► disks, clocks, network, power
//	                              │
//	                     nodes ◄──┴──► workload.Crew ──► history ─────┐
//	                       └───────── finals, once all is mended ─────┴──► history.Check
//
// The clients are those of server/servertest/workload, which other processes meet too, over connections
// of this network.
//
// # What is simulated
//
//   - Disks (disk.go, mortal.go, clean.go, rot.go): Pebble's crashable memory file system. With the
//     power goes what was not synced, by blocks and by names, all of it, some, or nothing. Syncs
//     fail, and leave the log's pages clean as Linux does; the disk is full or slow, bits flip.
//   - Network (network.go, pipe.go): streams between hosts, each way with a latency, that are cut
//     one way or both, slow, or reset, while what was sent still arrives or does not.
//   - Clocks (clock.go): each node's has a skew and a drift, and jumps. Timers are the bubble's,
//     and right.
//   - Power (node.go): a node's goroutines cannot be killed. One that loses its power keeps running
//     as a ghost, on a copy of its disk that nobody will see again, with no connection to anybody,
//     until it is closed.
//   - Operators (operator.go, replace.go): restart nodes, move the leadership, rotate the signing
//     key, and replace a node whose disk is lost.
//
// # What is not
//
// What ends a process instead of a call: Pebble's Fatalf over its list of files. Hashicorp/raft's
// panics over term and vote end a goroutine here (wouldPanic). A disk that fails does so while its
// node serves, not while it starts: Pebble leaves a goroutine behind then, and the bubble would
// never be empty. Processes that are stopped and go on, and all that is said here, are for real
// processes.
//
// # Traps
//
// Fake time goes on when every goroutine of the bubble waits for a channel, a timer or a condition;
// who waits for a mutex does not count. So nothing may wait for time or for another node while it
// holds a mutex that somebody else wants: time would stand still for ever. That is a good rule on a
// real node too, where such a mutex makes callers wait beyond their deadlines.
//
// A plan is a function of its seed. What comes of it is nearly so: the Go scheduler, select and
// maps draw too. The Makefile's verb runs one thread without preemption, in which most failures
// repeat.
package sim
