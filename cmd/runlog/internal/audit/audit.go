package audit

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Query, export, prove and verify what the cluster recorded",
		Args:  session.Subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.auditQueryCommand())
	cmd.AddCommand(a.auditExportCommand())
	cmd.AddCommand(a.auditVerifyCommand())
	cmd.AddCommand(a.auditProofCommand(), a.auditCheckpointsCommand(), a.auditKeysCommand(), a.auditRotateKeyCommand())
	return cmd
}
