// Command runlog is the server and its command line in one binary.
//
//	main.go, root.go    the command tree
//	errors.go           the reasons of the server's errors
//	internal/serve      serve
//	internal/intake     append, import
//	internal/outbox     outbox
//	internal/runs       events, snapshot, runs, watch
//	internal/audit      audit
//	internal/cluster    cluster, projector
//	internal/backup     backup, restore
//
// The packages of commands import what lies in client/command, and never each other: session runs a
// command line, and has the flags of every command, the connection and the text of an error; output
// has tables, JSON lines, progress and exit codes.
package main
