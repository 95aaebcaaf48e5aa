// Package backup makes, lists, verifies, prunes and restores backups: the commands backup and
// restore.
package backup

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the commands backup and restore.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{a.backupCommand(), a.restoreCommand()}
}
