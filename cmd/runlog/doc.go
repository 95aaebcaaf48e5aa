// Command runlog is the server and its command line in one binary.
//
//	main.go, root.go    signals, streams, the command tree
//	errors.go           the reasons of the server's errors
//	internal/session    the flags of every command, the connection, the text of an error
//	internal/output     tables, JSON lines, progress, exit codes
//	internal/serve      serve
//	internal/intake     append, import
//	internal/outbox     outbox
//	internal/runs       events, snapshot, runs, watch
//	internal/audit      audit
//	internal/cluster    cluster, projector
//	internal/backup     backup, restore
//	internal/bench      bench
//
// The packages of commands import session and output, and never each other.
package main
