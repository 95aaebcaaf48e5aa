// Command runlog is the server and its command line in one binary.
//
//	main.go, root.go       the command tree
//	errors.go              the reasons of the server's errors
//	internal/serve         serve
//	internal/access        token, whoami, context
//	internal/tenant        tenant
//	internal/intake        append, import
//	internal/outbox        outbox
//	internal/runs          events, snapshot, runs, watch
//	internal/queue         queue, run
//	internal/signal        signal, attest
//	internal/subscription  subscriptions, consume
//	internal/audit         audit
//	internal/cluster       cluster, projector
//	internal/backup        backup, restore
//
// The packages of commands import what lies in client/command, and never each other: session runs a
// command line, and has the flags of every command, the connection and the text of an error; output
// has tables, JSON lines, progress and exit codes.
//
// A command is made of their parts: session.Group is a command with commands below it,
// session.Arguments checks arguments, Session.WithClient dials, client.Pages reads a list,
// output.List writes it, Output.Tell says what was done, and Output.Show what a thing is.
package main
