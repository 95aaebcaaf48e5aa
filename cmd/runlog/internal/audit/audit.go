package audit

import (
	"github.com/spf13/cobra"

	"runlog/client/command/session"
)

func (a *app) auditCommand() *cobra.Command {
	return session.Group(&cobra.Command{Use: "audit", Short: "Query, export, prove and verify what the cluster recorded"},
		a.auditQueryCommand(), a.auditExportCommand(), a.auditVerifyCommand(), a.auditProofCommand(), a.auditCheckpointsCommand(),
		a.auditMonitorCommand(), a.auditKeysCommand(), a.auditRotateKeyCommand())
}
