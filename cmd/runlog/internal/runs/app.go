// Package runs reads runs: the commands events, snapshot, diff, explain, runs and watch.
package runs

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the commands that read runs.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{a.eventsCommand(), a.snapshotCommand(), a.diffCommand(), a.explainCommand(), a.watchCommand(), a.runsCommand()}
}
