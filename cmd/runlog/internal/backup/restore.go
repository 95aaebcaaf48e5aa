package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/cmd/internal/signingkey"

	"github.com/spf13/cobra"

	"runlog/audit/proof"
	"runlog/server/cluster"
	"runlog/server/offline"
	"runlog/storage"
	"runlog/storage/backup"
)

func (a *app) restoreCommand() *cobra.Command {
	opts := offline.RestoreOptions{}
	cmd := &cobra.Command{
		Use:   "restore DIR[/NAME]",
		Short: "Make the data directory of a node from a backup",
		Long: `Make a data directory from the backup NAME in DIR, or from the one in DIR with the newest state. The backup is
verified before anything is written. A data directory that is not empty is refused. So are the working directory
and a mount point: name a directory below it.

"runlog serve --data-dir" starts the node. It is the only member of a new cluster, which continues where the
backup ends: runSeq, duplicates, persistedAt and chains. New nodes join it as usual. The nodes of the old cluster
do not connect to it: stop them, or the clusters diverge and neither has all events. The new cluster has its own
id and signing key: back it up into a new directory, and give its public key to all auditors.

The new cluster is held: it leases no run and delivers no event to webhooks, brokers and consumers until
"runlog cluster release". With --start-paused=false it starts runs and delivers from its start on.

With --key the backup must be signed with that key.`,
		Example: "  runlog restore /backups/main --data-dir /var/lib/runlog\n  runlog restore /backups/main/20260212T0600 --data-dir ./copy --node-id copy",
		Args:    session.OneArgument("the directory of the backups, or a backup in it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Repository, opts.Backup = repositoryOf(args[0])
			return a.restore(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.DataDir, "data-dir", "./runlog-data", "data directory to make")
	f.StringVar(&opts.NodeID, "node-id", "", "name of the node; default: generated")
	f.BoolVar(&opts.StartPaused, "start-paused", true, "hold the new cluster until runlog cluster release: no run is leased, no event delivered")
	signingkey.Flag(cmd, &opts.PublicKeys)
	return cmd
}

// repositoryOf splits a path into the directory of backups and the name of one in it, if any.
func repositoryOf(path string) (repo *backup.Repository, name string) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return backup.Open(nil, path), ""
	}
	return backup.Open(nil, filepath.Dir(path)), filepath.Base(path)
}

func (a *app) restore(ctx context.Context, opts offline.RestoreOptions) error {
	if fault := cluster.NodeIDFault(opts.NodeID); opts.NodeID != "" && fault != "" {
		return output.UsageError("--node-id %q %s", opts.NodeID, fault)
	}
	log, err := output.NewLogger(a.Stderr, "warn", "text")
	if err != nil {
		return err
	}
	opts.Logger, opts.RaftAddress = log, "127.0.0.1:7413"
	opts.Fail = func(err error) {
		log.Error("restore failed", "err", err)
		os.Exit(int(output.ExitFailed))
	}
	bar, advance := a.copying()
	opts.Progress = advance
	r, err := offline.Restore(ctx, opts)
	bar.Clear()
	switch {
	case errors.Is(err, offline.ErrNotEmpty), errors.Is(err, offline.ErrNotReplaceable):
		return output.Errorf(output.ExitUsage, "%s", err.Error())
	case errors.Is(err, storage.ErrPromise):
		return output.Errorf(output.ExitRefused, "%s", err.Error())
	case err != nil:
		return backupError(err)
	}
	return a.printRestored(r, opts.DataDir, opts.StartPaused)
}

func (a *app) printRestored(r *offline.Restored, dir string, held bool) error {
	m := r.Backup
	target, err := filepath.Abs(dir)
	if err != nil {
		target = dir
	}
	if a.Format == output.JSON {
		return a.Object(struct {
			NodeID    string     `json:"nodeId"`
			ClusterID string     `json:"clusterId"`
			DataDir   string     `json:"dataDir"`
			Key       string     `json:"key,omitempty"`
			Held      bool       `json:"held"`
			Backup    backupLine `json:"backup"`
		}{r.NodeID, r.ClusterID, dir, r.PublicKey, held, lineOf(m)})
	}
	out := bufio.NewWriter(a.Stdout)
	fmt.Fprintf(out, "restored into %s\n", target)
	output.Facts(out,
		[2]string{"Node", r.NodeID},
		[2]string{"Cluster", r.ClusterID + ", new; this node is its only member"},
		[2]string{"Backup", fmt.Sprintf("%s of cluster %x, entry %s", m.Name, m.Cluster, output.Number(m.Position))},
		[2]string{"Content", fmt.Sprintf("%s of %s, complete through %s", output.Plural(m.Events, "event"), output.Plural(m.Runs, "run"), proof.FormatTime(m.CompleteThrough))},
		[2]string{"Signature", signature(m, r.PublicKey)},
	)
	fmt.Fprintf(out, "\na backup has no flags: add those of access that the old nodes had (--auth, --admin-token-file,\n"+
		"--access-config, --tls-cert); without them every caller that reaches the node may do everything\n"+
		"start it with: runlog serve --data-dir %s\nthen send again what producers sent after that time; let two new nodes join; back up into a new directory\n", dir)
	if held {
		fmt.Fprintln(out, "it leases no run and delivers no event until: runlog cluster release")
	}
	return out.Flush()
}
