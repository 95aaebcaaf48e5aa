// Command runlog is the server and its command line in one binary.
//
//	main.go, root.go      signals, streams, the command tree, the flags that every command has
//	exit.go, refusal.go   exit codes, and one line for every error
//	append*.go            the way of JSON lines to the server, below
//	events.go, snapshot.go, watch*.go, runs.go  one read command each
//	cluster*.go           the nodes of a cluster: what is wrong with them, and who belongs to it
//	record.go, table.go, text.go                how answers become text
//	serve.go              the server
//
// An append is a pipeline of bounded memory. Reading stops while enough events wait; a run has one
// request under way at most, which keeps its order; refused events are taken out and named:
//
//	intake ──chunks──▶ grouper ──batches of one run──▶ sender (8 at a time)
//	                      │                              │
//	                      └────────▶ report ◀──outcomes──┘
//
// Commands write answers to stdout, and everything meant for people alone (refused lines, progress,
// errors) to stderr.
package main
