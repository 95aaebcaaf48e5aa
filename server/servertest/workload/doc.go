// Package workload has clients that use a cluster in all the ways that there are, and record what
// they see.
//
//	Clients ──► workers: appends, batches, streams, conditional appends, duplicates, diverging content; reads, snapshots, windows
//	     ──► watchers: of one run, of a tenant's runs, resumed where they were cut
//	     ──► Recorder ──► History
//	     ──► Finals: what every node has, once all is quiet
//
// What is asked is drawn from a seed, a stream for every client. How a node is reached is the
// caller's: Dial may lead through a simulated network, or to a process in a namespace of its own.
// Clients try again what they do not know the end of, at another node, and sometimes give up. They
// hold no mutex while they wait, so that they may live in a bubble of fake time
// (server/servertest/sim/doc.go, "Traps").
//
// What must not happen and no checker of histories can see, such as a digest that is none, goes to
// Options.Broken.
package workload
