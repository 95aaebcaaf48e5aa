// Command runlog-runner is the reference engine: it executes the runs of a queue of runlog, with
// steps that operators attest. It is a client of the cluster, and nothing of it is part of a node.
//
//	runlog-runner serve ──► engine/runner ──► client ──► cluster
//	      ▲ HTTP API
//	runlog-runner run, resume; operators and their pages
//
// Package engine/runner is the engine, and tells how it works. This program has the flags of the
// executors, of the stores and of the connection, and the commands of operators.
package main
