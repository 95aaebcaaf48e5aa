package audit

import "github.com/spf13/cobra"

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Query, export, prove and verify what the cluster recorded",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(a.auditQueryCommand())
	cmd.AddCommand(a.auditExportCommand())
	cmd.AddCommand(a.auditVerifyCommand())
	cmd.AddCommand(a.auditProofCommand(), a.auditCheckpointsCommand(), a.auditKeysCommand(), a.auditRotateKeyCommand())
	return cmd
}
