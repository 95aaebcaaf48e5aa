// Package intake stores JSON lines: the commands append and import.
//
// Each is a pipeline of bounded memory. Reading stops while enough events wait. A run has at most
// one request under way, which keeps the order of its events. Refused events are taken out of their
// request and reported:
//
//	intake ──chunks──▶ grouper ──batches of one run──▶ sender or importer (8 at a time)
//	                      │                              │
//	                      └────────▶ report ◀──outcomes──┘
package intake

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the commands append and import.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{a.appendCommand(), a.importCommand()}
}
