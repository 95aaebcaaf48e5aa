package session

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"runlog/client/command/output"
)

// Main is the main function of a program: it runs the command line of this process, and ends the
// process with the exit code.
func Main(version string, run func(context.Context, *Session, []string) output.ExitCode) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end. A second one ends the process at once.
	context.AfterFunc(ctx, stop)
	s := &Session{
		Output: output.Output{
			Stdout:       os.Stdout,
			Stderr:       os.Stderr,
			StdoutWidth:  width(os.Stdout),
			StderrWidth:  width(os.Stderr),
			StdoutHeight: height(os.Stdout),
		},
		Stdin:   os.Stdin,
		Getenv:  os.Getenv,
		Environ: os.Environ,
		Version: version,
	}
	os.Exit(int(run(ctx, s, os.Args[1:])))
}

// A terminal that does not tell its size is a VT100.
const (
	usualWidth  = 80
	usualHeight = 24
)

// width returns the columns of the terminal f; 0 if f is no terminal.
func width(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return cmp.Or(width, usualWidth)
}

// height returns the lines of the terminal f; 0 if f is no terminal.
func height(f *os.File) int {
	_, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return cmp.Or(height, usualHeight)
}
