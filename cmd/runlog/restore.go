package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
		Short: "Make the data directory of a node out of a backup",
		Long: `Make a data directory out of the backup NAME in DIR, or of the one in DIR that reaches furthest. Everything
is verified before anything is written; a data directory that is not empty is refused, and so is the
working directory and one where a disk is mounted: name a directory below that.

"runlog serve --data-dir" starts the node. It is the only member of a new cluster, which goes on where the
backup ends: runSeq, duplicates, persistedAt and chains. New nodes join it as any other. The nodes
that were backed up do not talk to it: stop them, or what is appended to both is in neither of them whole.
The new cluster has an id and a signing key of its own: back it up into a new directory, and give its
public key to everybody who verifies.

With --key the backup must be signed with that key.`,
		Example: "  runlog restore /backups/main --data-dir /var/lib/runlog\n  runlog restore /backups/main/20260212T0600 --data-dir ./copy --node-id copy",
		Args:    oneArgument("the directory of the backups, or a backup in it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Repository, opts.Backup = repositoryOf(args[0])
			return a.restore(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.DataDir, "data-dir", "./runlog-data", "data directory that is made")
	f.StringVar(&opts.NodeID, "node-id", "", "name of the node; default: made up")
	keyFlag(cmd, &opts.PublicKeys)
	return cmd
}

// repositoryOf tells a directory of backups from the name of one in it.
func repositoryOf(path string) (repo *backup.Repository, name string) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return backup.Open(nil, path), ""
	}
	return backup.Open(nil, filepath.Dir(path)), filepath.Base(path)
}

func (a *app) restore(ctx context.Context, opts offline.RestoreOptions) error {
	if err := checkKeys(opts.PublicKeys); err != nil {
		return err
	}
	if fault := cluster.NodeIDFault(opts.NodeID); opts.NodeID != "" && fault != "" {
		return usageError("--node-id %q %s", opts.NodeID, fault)
	}
	log, err := newLogger(a.stderr, "warn", "text")
	if err != nil {
		return err
	}
	opts.Logger, opts.RaftAddress = log, "127.0.0.1:7413"
	opts.Fail = func(err error) {
		log.Error("the restore is given up", "err", err)
		os.Exit(int(exitFailed))
	}
	bar, advance := a.copying()
	opts.Progress = advance
	r, err := offline.Restore(ctx, opts)
	bar.clear()
	switch {
	case errors.Is(err, offline.ErrNotEmpty), errors.Is(err, offline.ErrNotReplaceable):
		return &exitError{exitUsage, err.Error()}
	case errors.Is(err, storage.ErrPromise):
		return &exitError{exitRefused, err.Error()}
	case err != nil:
		return backupError(err)
	}
	return a.printRestored(r, opts.DataDir)
}

func (a *app) printRestored(r *offline.Restored, dir string) error {
	m := r.Backup
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(struct {
			NodeID    string     `json:"nodeId"`
			ClusterID string     `json:"clusterId"`
			DataDir   string     `json:"dataDir"`
			Key       string     `json:"key,omitempty"`
			Backup    backupLine `json:"backup"`
		}{r.NodeID, r.ClusterID, dir, r.PublicKey, lineOf(m)})
	}
	_, err := fmt.Fprintf(a.stdout, "node %s of the new cluster %s has %s of %s, complete through %s, as cluster %x had them at entry %s\n%s\nstart it with: runlog serve --data-dir %s\n",
		r.NodeID, r.ClusterID, plural(m.Events, "event"), plural(m.Runs, "run"), proof.FormatTime(m.CompleteThrough), m.Cluster, number(m.Position),
		signature(m, r.PublicKey), dir)
	return err
}
