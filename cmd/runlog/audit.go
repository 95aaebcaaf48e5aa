package main

import "github.com/spf13/cobra"

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Ask what was recorded when, take it away, and verify it",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(a.auditQueryCommand())
	cmd.AddCommand(a.auditExportCommand())
	cmd.AddCommand(a.auditVerifyCommand())
	return cmd
}
