package session

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"runlog/client/command/output"
)

// OneRun checks the arguments of a command that takes the id of one run.
func OneRun(cmd *cobra.Command, args []string) error {
	return OneArgument("the id of one run")(cmd, args)
}

// OneArgument checks the arguments of a command that takes one.
func OneArgument(what string) cobra.PositionalArgs { return Arguments(1, 1, what) }

// Arguments checks the arguments of a command that takes at least least and at most most of them.
// what names them in the error.
func Arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s takes %s, not %s", cmd.Name(), what, output.Plural(len(args), "argument"))
		}
		return nil
	}
}

// NoArguments checks the arguments of a command that takes flags only. The hint says how to name
// what people often give as an argument.
func NoArguments(hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%s takes no argument, but got %q: %s", cmd.Name(), args[0], hint)
		}
		return nil
	}
}

// Group makes a command one that only has commands below it. Alone, it prints its help.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args = subcommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(commands...)
	return cmd
}

// subcommand refuses an argument of a group: it is no command.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if cmd.SuggestionsMinimumDistance == 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}
