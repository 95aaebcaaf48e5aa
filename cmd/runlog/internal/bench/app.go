// Package bench is the command bench: it measures nodes and clusters with the workloads of the
// module's package bench, and prints the report.
package bench

import (
	"github.com/spf13/cobra"

	"runlog/cmd/internal/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the command bench.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{a.benchCommand()}
}
