package cluster

import (
	"fmt"
	"os"
	"strings"

	"runlog/client/command/output"
	"runlog/cmd/internal/datadir"
	"runlog/server/offline"

	"github.com/spf13/cobra"
)

// clusterRecoverCommand makes one node the cluster after a majority of the voters was lost for
// good.
func (a *app) clusterRecoverCommand() *cobra.Command {
	var dir string
	var sure bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Continue with one node after a majority was lost for good",
		Long: `Make the node of a data directory, which must not run, the only voter of its cluster. Use this if a majority
of the voters is lost for good.

Events that only the lost nodes had are lost, even if they were acknowledged. The lost nodes must never run
again: they would be a second cluster with the same id. Start the other nodes that are left with empty data
directories and --join. If several nodes are left, recover the one with the highest last index:
"runlog cluster status -o json" shows it while a node runs, and this command prints it.`,
		Example: "  runlog cluster recover --data-dir /var/lib/runlog --accept-loss",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !sure {
				return output.UsageError("events that only the lost nodes had are lost; accept this with --accept-loss, and see runlog cluster recover --help")
			}
			log, err := output.NewLogger(a.Stderr, "warn", "text")
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); err != nil {
				return output.UsageError("--data-dir: %v", err)
			}
			r, err := offline.Recover(offline.Options{DataDir: dir, Logger: log, Fail: func(err error) {
				log.Error("recovery failed", "err", err)
				os.Exit(int(output.ExitFailed))
			}})
			if err != nil {
				return datadir.Explain(err)
			}
			return a.printRecovery(r)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "./runlog-data", "data directory of the node that is left")
	cmd.Flags().BoolVar(&sure, "accept-loss", false, "accept that events may be lost")
	return cmd
}

func (a *app) printRecovery(r *offline.Recovery) error {
	line := struct {
		NodeID    string   `json:"nodeId"`
		ClusterID string   `json:"clusterId"`
		LastIndex uint64   `json:"lastIndex,string"`
		Lost      []string `json:"lost"`
	}{r.NodeID, r.ClusterID, r.LastIndex, r.Lost}
	lost := strings.Join(r.Lost, ", ")
	if lost == "" {
		lost = "none"
	}
	return a.Tell(fmt.Sprintf("node %s is now the only voter of cluster %s; its log ends at %d; removed members: %s",
		r.NodeID, r.ClusterID, r.LastIndex, lost), line)
}
