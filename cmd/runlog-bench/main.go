package main

import (
	"context"

	"runlog/client/command/output"
	"runlog/client/command/session"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

func main() { session.Main(version, run) }

// run executes one command line, prints its error, and returns the exit code.
func run(ctx context.Context, s *session.Session, args []string) output.ExitCode {
	return s.Run(ctx, (&app{Session: s}).rootCommand(), args, nil)
}

// app is the session, as the commands of this program use it.
type app struct {
	*session.Session
	runlog string // value of --runlog
}
