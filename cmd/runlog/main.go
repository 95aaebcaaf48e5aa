package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"runlog/cmd/runlog/internal/output"
	"runlog/cmd/runlog/internal/session"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end. A second one ends the process at once.
	context.AfterFunc(ctx, stop)
	s := &session.Session{
		Output: output.Output{
			Stdout:      os.Stdout,
			Stderr:      os.Stderr,
			StdoutWidth: terminalWidth(os.Stdout),
			StderrWidth: terminalWidth(os.Stderr),
		},
		Stdin:   os.Stdin,
		Getenv:  os.Getenv,
		Version: version,
	}
	os.Exit(int(run(ctx, s, os.Args[1:])))
}

// terminalWidth returns the columns of the terminal f; 0 if f is no terminal.
func terminalWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
