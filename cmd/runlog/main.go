package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// version is set when the binary is linked: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to end in good order; from then on a second one ends at once.
	context.AfterFunc(ctx, stop)
	a := &app{
		stdin:       os.Stdin,
		stdout:      os.Stdout,
		stderr:      os.Stderr,
		stdoutWidth: terminalWidth(os.Stdout),
		stderrWidth: terminalWidth(os.Stderr),
		getenv:      os.Getenv,
	}
	os.Exit(int(a.run(ctx, os.Args[1:])))
}

// terminalWidth returns the columns of the terminal that f is, or 0 when f is none.
func terminalWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
