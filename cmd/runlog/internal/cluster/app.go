// Package cluster looks after the nodes of a cluster: the commands cluster and projector. It shows
// and judges their state, and changes the membership.
package cluster

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the commands cluster and projector.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{a.clusterCommand(), a.projectorCommand()}
}
