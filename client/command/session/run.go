package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"runlog/client/command/output"
	"runlog/proto/contract"
)

// Run executes one command line, prints its error, and returns the exit code. It calls check, which
// may be nil, once the command line is known to be right.
func (s *Session) Run(ctx context.Context, root *cobra.Command, args []string, check func() error) output.ExitCode {
	began := false // Before this, every error is one of the command line.
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		began = true
		if check == nil {
			return nil
		}
		return check()
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(explainFlag)
	root.SetArgs(args)
	root.SetIn(s.Stdin)
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return output.ExitOK
	}
	if !began {
		text := err.Error()
		if e, ok := errors.AsType[*strconv.NumError](err); ok {
			text = strings.Replace(text, e.Error(), numberHelp(e), 1)
		}
		err = output.UsageError("%s; see %s --help", text, cmd.CommandPath())
	}
	code, text := s.Explain(err)
	fmt.Fprintf(s.Stderr, "%s: %s\n", root.Name(), text)
	return code
}

// numberHelp says what a flag of a number needs, without the words of strconv.
func numberHelp(e *strconv.NumError) string {
	if errors.Is(e, strconv.ErrRange) {
		return "the number is too large"
	}
	return "want a whole number from 0 on"
}

// explainFlag adds to the error of an unknown flag which one was probably meant.
func explainFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := contract.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w (did you mean --%s?)", err, near)
	}
	return err
}
