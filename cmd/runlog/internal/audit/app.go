// Package audit is the command audit: windows of time, their export, signed checkpoints, proofs of
// a run, and the verification of files without a server.
package audit

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the command audit.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{a.auditCommand()}
}
