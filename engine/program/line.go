package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Exit codes of a program.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// Main runs a program until it ends, or a signal ends it. The error of one that has failed is on
// standard error.
func Main(name string, run func(ctx context.Context, out, stderr io.Writer, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	err := run(ctx, os.Stdout, os.Stderr, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(ExitCode(err))
	}
}

// usageError is a fault of a command line.
type usageError struct{ error }

// Unwrap returns the fault itself.
func (u usageError) Unwrap() error { return u.error }

// Usage marks an error as a fault of the command line, or of a file that it names. nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// ExitCode returns the exit code of a program that ends with an error: ExitUsage after a fault of
// the command line, otherwise ExitFailed.
func ExitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	return ExitFailed
}

// Verb is a subcommand.
type Verb struct {
	// Args names its arguments; empty: it takes flags alone.
	Name, Args, Short string
}

// Choose returns the index of the verb that a command line names. Without one it answers, and
// returns flag.ErrHelp if that was what the user wanted.
func Choose(name, version string, verbs []Verb, out, stderr io.Writer, args []string) (int, error) {
	is := func(names ...string) bool { return len(args) > 0 && slices.Contains(names, args[0]) }
	if i := slices.IndexFunc(verbs, func(v Verb) bool { return is(v.Name) }); i >= 0 {
		return i, nil
	}
	if is("version", "-version", "--version") {
		fmt.Fprintln(out, name, version)
		return 0, flag.ErrHelp
	}
	fmt.Fprintf(stderr, "usage: %s COMMAND [flags]\n", name)
	for _, v := range verbs {
		fmt.Fprintf(stderr, "  %-12s %s\n", v.Name, v.Short)
	}
	fmt.Fprintf(stderr, "  %-12s %s\n", "version", "print the version of this program")
	remedy := fmt.Sprintf("name a command: %s COMMAND --help tells its flags", name)
	switch {
	case len(args) == 0:
		return 0, errors.New(remedy)
	case is("help", "-h", "-help", "--help"):
		return 0, flag.ErrHelp
	}
	return 0, fmt.Errorf("unknown command %q: %s", args[0], remedy)
}

// CheckArguments refuses other arguments than those of the verb.
func (v Verb) CheckArguments(args []string) error {
	got, want := strings.Join(args, " "), len(strings.Fields(v.Args))
	switch {
	case len(args) == want:
		return nil
	case want == 0:
		return fmt.Errorf("%s takes flags alone, and got %q: leave it out", v.Name, got)
	}
	return fmt.Errorf("%s takes one argument, %s, behind its flags, and got %q", v.Name, v.Args, got)
}

// List is a flag that may repeat.
type List []string

// String returns the values with commas between them.
func (l *List) String() string { return strings.Join(*l, ",") }

// Set adds a value.
func (l *List) Set(value string) error { *l = append(*l, value); return nil }

// Faults collects those of flags.
type Faults []error

// Refuse adds a fault if there is one.
func (f *Faults) Refuse(fault bool, format string, args ...any) {
	if fault {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Join returns them as one error; nil: there are none.
func (f *Faults) Join() error { return errors.Join(*f...) }

// remedied is an error with what to do about it.
type remedied struct {
	error
	remedy string
}

// Error has the remedy behind the cause.
func (r *remedied) Error() string { return strings.TrimSuffix(r.error.Error(), ".") + "; " + r.remedy }

// Unwrap returns the cause.
func (r *remedied) Unwrap() error { return r.error }

// Remedied returns an error with its remedy; with an empty one, the error itself.
func Remedied(err error, remedy string) error {
	if err == nil || remedy == "" {
		return err
	}
	return &remedied{err, remedy}
}
