package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"runlog/bench"
)

func (a *app) benchBackupCommand() *cobra.Command {
	o := bench.BackupOptions{}
	size := byteSize(1 << 30)
	var dir string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Measure backups and restores next to a copy on the same disk",
		Long: `Fill the store of a node of its own, and measure in each round, on one disk: a copy of its files with one
sync at its end, a full backup, another one without changes, and a restore. What is read comes from the disk and
not from memory. At the end are their ratios, and what a backup is held to.`,
		Example: "  runlog bench backup --bytes 4GiB --rounds 5 --dir /var/tmp",
		Args:    benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Bytes = int64(size); o.Bytes < 1<<20 || o.Rounds < 1 || o.Rounds > bench.MaxRounds {
				return usageError("--bytes is 1MiB at least, and --rounds 1 to %d", bench.MaxRounds)
			}
			return a.benchBackup(cmd.Context(), o, dir)
		},
	}
	f := cmd.Flags()
	f.Var(&size, "bytes", "size of the store, about")
	f.IntVar(&o.Rounds, "rounds", 3, "repeat everything so often and report the medians")
	f.StringVar(&dir, "dir", os.TempDir(), "where data and backups go, in a directory that is removed afterwards")
	return cmd
}

func (a *app) benchBackup(ctx context.Context, o bench.BackupOptions, dir string) (err error) {
	if o.Binary, err = os.Executable(); err != nil {
		return err
	}
	if o.Dir, err = os.MkdirTemp(dir, "runlog-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	var bar *progress
	if a.stderrWidth > 0 {
		bar = &progress{w: a.stderr, width: a.stderrWidth}
		o.Told = bar.say
	}
	report, err := bench.RunBackup(ctx, o)
	bar.clear()
	if err != nil {
		return err
	}
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(report)
	}
	out := bufio.NewWriter(a.stdout)
	for _, t := range report.Tables() {
		rows := newTable(out, a.stdoutWidth, t.Heads...)
		for _, cells := range t.Rows {
			rows.row(cells...)
		}
		rows.end()
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "a backup has %s, %s\n", plural(report.Files, "file"), sizeText(uint64(report.Bytes)))
	return out.Flush()
}
