// Package runner has the commands of the reference engine: runner.
package runner

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct {
	*session.Session
	api string // the URL of a runner
	by  string // the operator
}

// defaultListen is where a runner listens.
const defaultListen = "127.0.0.1:7430"

// Commands returns the commands of the reference engine.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{Session: s}
	cmd := &cobra.Command{
		Use:   "runner",
		Short: "Execute runs, with steps that operators attest",
		Args:  session.Subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.serveCommand(), a.runCommand(), a.resumeCommand())
	return []*cobra.Command{cmd}
}
