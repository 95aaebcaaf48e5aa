// Package serve is the command serve: it configures a node, runs it, and stops it.
package serve

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct {
	*session.Session
}

// Variables returns the environment variables of the flags.
func Variables(s *session.Session) (names []string) {
	(&app{Session: s}).serveCommand().LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		names = append(names, session.Variable(f.Name))
	})
	return names
}

// Commands returns the command serve.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{a.serveCommand()}
}
