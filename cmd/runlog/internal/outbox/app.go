// Package outbox has the command outbox: what engines have put into a local outbox.
package outbox

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/client/outbox"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the command outbox.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{session.Group(&cobra.Command{
		Use:   "outbox",
		Short: "Show and send what waits in an engine's outbox",
		Long: `An engine that cannot store an event in time puts it into its outbox, a local file, and sends it later.
These commands are for an operator: ls and export read the file while the engine runs, and change nothing.
drain sends the records in place of an engine that does not run any more.`,
	}, a.listCommand(), a.exportCommand(), a.drainCommand())}
}

// oneFile checks the arguments of each of the commands.
var oneFile = session.OneArgument("the file of one outbox")

// fileError tells what to do about a file that cannot be opened.
func fileError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return output.UsageError("%v; name the file of an outbox", err)
	case errors.Is(err, outbox.ErrLocked):
		return output.WithHint(err, "an engine that runs sends its records itself")
	default:
		return err
	}
}

// damage is the error of an outbox of which something is lost; nil: nothing is.
func damage(path string, r outbox.Recovery) error {
	if !r.IsDamaged() {
		return nil
	}
	return output.Errorf(output.ExitFailed, "%s is damaged: %s; everything else was read", path, r)
}
