// Package workload provides clients that use every call of a cluster and record what they see.
//
//	Clients ──► workers: appends, batches, streams, conditional appends, duplicates,
//	            diverging content, attempts left out; reads, snapshots, windows
//	        ──► watchers: of one run, of a tenant's runs, resumed after their connection is cut
//	        ──► Stranger, Leaver, Hog, Forger: clients that must not get what they ask for
//	        ──► Starters, Attesters, Bus: clients of queues, attestations and subscriptions
//	        ──► Recorder ──► History
//	        ──► Finals: the records of every node, after the faults have ended
//
// Requests are drawn from a seed, with a stream for every client. Three appends of four go through
// the product's client (library.go), of which each host has one with an Appender. The other
// appends, and all reads, go to one node. In addition to these calls, each host appends to one run
// through its Appender without waiting for the answers (pipeline.go). The caller provides the
// connections: Dial and Connect may lead through a simulated network, or to a process in a network
// namespace. A client repeats a call with an unknown outcome, and sometimes stops trying. Clients
// hold no mutex while they wait, so that they may run in a bubble of fake time
// (server/servertest/sim/doc.go, "Traps").
//
// This package keeps no ledger of its own: package history checks that what was acknowledged is
// there, once. Violations that no history shows, such as a malformed digest, go to Options.Broken.
package workload
