// Command peers runs runlog and three systems that are used in its place on the same machine, with
// the same work, and prints what runlog's figures are as multiples of theirs.
//
//	                     ┌─ runlog     its own binary
//	bench.Run ─ System ──┼─ postgres   Debian's packages, one table, one function
//	                     ├─ etcd       this binary, as a child process
//	                     └─ nats       this binary, as a child process
//
// Each is a process of its own on loopback, started empty for each workload and ended by its
// process id; its data is removed. The package bench makes the events, drives the callers, checks
// the answers and gathers the figures; this command starts the systems and stores an event in them
// as a good adapter would:
//
//   - An answer leaves when the event is on stable storage.
//   - An event whose key is stored is not stored again; it is answered with what was stored.
//   - The events of a run are numbered in rising order.
//
// The workloads about queues use River's jobs on PostgreSQL, and a work queue of JetStream. Those
// about sinks start a receiver beside runlog: a JetStream server, or a Kafka broker (kfake) that
// keeps records in memory. Both are child processes of this binary.
//
// With --nodes, runlog and etcd are several processes each, which make a cluster; calls go to its
// leader.
//
// docs/benchmarks.md tells the settings of each and where its promise is weaker than runlog's.
package main
