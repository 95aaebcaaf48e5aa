// Package witness has the command witness: a witness of logs, for auditors to run, and what asks
// one.
package witness

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the command witness.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{session.Group(&cobra.Command{
		Use:   "witness",
		Short: "Run a witness of logs, and ask one",
		Long: `A witness signs one history of a log and no other. Whoever trusts it need not keep checkpoints: a checkpoint with its
signature continues all that it has signed before. An auditor runs it where the operators of the cluster have no rights.`,
	}, a.serveCommand(), a.askCommand())}
}
