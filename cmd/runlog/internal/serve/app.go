// Package serve is the command serve: it configures a node, runs it, and stops it.
package serve

import (
	"github.com/spf13/cobra"

	"runlog/cmd/runlog/internal/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the command serve.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{a.serveCommand()}
}
