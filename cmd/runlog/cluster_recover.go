package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runlog/server/offline"
	"strings"

	"github.com/spf13/cobra"
)

// clusterRecoverCommand is for the day on which a majority of the voters is gone for good.
func (a *app) clusterRecoverCommand() *cobra.Command {
	var dir string
	var sure bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Go on with one node after a majority was lost for good",
		Long: `Make the node of a data directory, which must not run, the only voter of its cluster. It is for the day on
which a majority of the voters is lost for good, and nothing but this node is left.

What only the lost nodes had is lost, also if it was acknowledged. The lost nodes must never run again: they
would be a second cluster with the same id. Other nodes that are left start anew with empty data directories
and --join. Of several nodes that are left, recover the one with the highest last index, which
"runlog cluster status -o json" of each tells while it still runs, and this command tells.`,
		Example: "  runlog cluster recover --data-dir /var/lib/runlog --accept-loss",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !sure {
				return usageError("events that only the lost nodes had are lost; say --accept-loss if that is understood, and see runlog cluster recover --help")
			}
			log, err := newLogger(a.stderr, "warn", "text")
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); err != nil {
				return usageError("--data-dir: %v", err)
			}
			r, err := offline.Recover(offline.Options{DataDir: dir, Logger: log, Fail: func(err error) {
				log.Error("the recovery is given up", "err", err)
				os.Exit(int(exitFailed))
			}})
			if err != nil {
				return explainStart(err)
			}
			return a.printRecovery(r)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "./runlog-data", "data directory of the node that is left")
	cmd.Flags().BoolVar(&sure, "accept-loss", false, "it is understood that events may be lost")
	return cmd
}

func (a *app) printRecovery(r *offline.Recovery) error {
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(struct {
			NodeID    string   `json:"nodeId"`
			ClusterID string   `json:"clusterId"`
			LastIndex uint64   `json:"lastIndex,string"`
			Lost      []string `json:"lost"`
		}{r.NodeID, r.ClusterID, r.LastIndex, r.Lost})
	}
	lost := strings.Join(r.Lost, ", ")
	if lost == "" {
		lost = "nobody"
	}
	_, err := fmt.Fprintf(a.stdout, "node %s is the only voter of cluster %s now; its log ends at %d; no members any more: %s\n",
		r.NodeID, r.ClusterID, r.LastIndex, lost)
	return err
}
