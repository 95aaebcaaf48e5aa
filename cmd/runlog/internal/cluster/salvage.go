package cluster

import (
	"errors"
	"fmt"
	"os"

	"runlog/client/command/output"
	"runlog/cmd/internal/datadir"
	"runlog/server/offline"

	"github.com/spf13/cobra"
)

// clusterSalvageCommand writes the events that one node has and that the others have lost.
func (a *app) clusterSalvageCommand() *cobra.Command {
	var dir, file string
	var from uint64
	cmd := &cobra.Command{
		Use:   "salvage --data-dir DIR -f FILE",
		Short: "Write the events that a node has and that the other members have lost",
		Long: `Write the events that a node has and that the other members have lost to a file of JSON lines, which
"runlog append -f FILE" appends again. The node must not run. Use this for a node that has stopped itself because a leader asked
it to drop log entries that it has applied: its last line says so.

The events are those from the first entry on that the node was to drop. The file is an export: it ends with a manifest, signed
with the cluster's key if the node has it, and "runlog audit verify FILE" checks it. To append it is safe: the cluster recognises
events that it has. The events keep their ids and keys, and get new numbers and times.

The node applies the rest of its log first. Entries that were in the log alone may never have been acknowledged; they are
written too. What is no event is not written: labels, engine references, leases.`,
		Example: "  runlog cluster salvage --data-dir /var/lib/runlog -f lost.jsonl\n  runlog append -f lost.jsonl",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return output.UsageError("--file is required: name the file to write")
			}
			if _, err := os.Stat(dir); err != nil {
				return output.UsageError("--data-dir: %v", err)
			}
			return a.salvage(dir, file, from)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "./runlog-data", "data directory of the node that has the events")
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write; it must not exist")
	cmd.Flags().Uint64Var(&from, "from-entry", 0, "first entry of the log to write; without it, the first that the node was to drop")
	return cmd
}

func (a *app) salvage(dir, file string, from uint64) (err error) {
	log, err := output.NewLogger(a.Stderr, "warn", "text")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return output.UsageError("%v; name a file that does not exist", err)
	}
	s, err := offline.Salvage(offline.SalvageOptions{
		Options: offline.Options{DataDir: dir, Logger: log, Fail: func(err error) {
			log.Error("salvage failed", "err", err)
			_ = os.Remove(file)
			os.Exit(int(output.ExitFailed))
		}}, From: from, Out: f,
	})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(file)) // a file without its manifest is cut
		if errors.Is(err, offline.ErrNothingToSalvage) {
			return output.Errorf(output.ExitRefused, "%v", err)
		}
		return datadir.Explain(err)
	}
	return a.printSalvage(s, file)
}

func (a *app) printSalvage(s *offline.Salvaged, file string) error {
	line := struct {
		File      string `json:"file"`
		NodeID    string `json:"nodeId"`
		ClusterID string `json:"clusterId"`
		First     uint64 `json:"firstEntry,string"`
		Last      uint64 `json:"lastEntry,string"`
		Applied   uint64 `json:"applied,string"`
		Events    uint64 `json:"events,string"`
		Signer    string `json:"signer"`
	}{file, s.NodeID, s.ClusterID, s.First, s.Last, s.Applied, s.Events, s.Signer}
	signer := s.Signer
	if signer == "" {
		signer = "none: the node does not have the cluster's key"
	}
	return a.Show(line,
		[2]string{"File", file},
		[2]string{"Node", fmt.Sprintf("%s of cluster %s", s.NodeID, s.ClusterID)},
		[2]string{"Events", output.Number(s.Events)},
		[2]string{"Entries", fmt.Sprintf("%d to %d; those after %d were in the log alone", s.First, s.Last, s.Applied)},
		[2]string{"Signed by", signer},
		[2]string{"Next", "runlog append -f " + file + ", then replace the node (docs/operations.md, Older copies)"},
	)
}
