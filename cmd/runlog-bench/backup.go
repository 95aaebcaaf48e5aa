package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"runlog/client/command/output"

	"github.com/spf13/cobra"

	"runlog/bench"
)

func (a *app) benchBackupCommand() *cobra.Command {
	o := bench.BackupOptions{}
	size := output.ByteSize(1 << 30)
	var dir string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Measure backups and restores, next to a copy on the same disk",
		Long: `Fill the store of a new node, and measure in each round, on one disk: a copy of its files with one sync at the
end, a full backup, another one without changes, and a restore. Reads come from the disk, not from memory. The
report ends with the ratios and the goals of a backup.`,
		Example: "  runlog-bench backup --bytes 4GiB --rounds 5 --dir /var/tmp",
		Args:    benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Bytes = int64(size); o.Bytes < 1<<20 || o.Rounds < 1 || o.Rounds > bench.MaxRounds {
				return output.UsageError("--bytes must be at least 1MiB, and --rounds from 1 to %d", bench.MaxRounds)
			}
			return a.benchBackup(cmd.Context(), o, dir)
		},
	}
	f := cmd.Flags()
	f.Var(&size, "bytes", "approximate size of the store")
	f.IntVar(&o.Rounds, "rounds", 3, "number of repetitions of everything; the report has the medians")
	f.StringVar(&dir, "dir", os.TempDir(), "place of data and backups, in a directory that is removed afterwards")
	return cmd
}

func (a *app) benchBackup(ctx context.Context, o bench.BackupOptions, dir string) (err error) {
	if o.Binary, err = a.node(); err != nil {
		return err
	}
	if o.Dir, err = os.MkdirTemp(dir, "runlog-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	var bar *output.Progress
	if a.StderrWidth > 0 {
		bar = a.NewProgress(0, time.Now())
		o.Told = bar.Say
	}
	report, err := bench.RunBackup(ctx, o)
	bar.Clear()
	if err != nil {
		return err
	}
	if a.Format == output.JSON {
		return a.Object(report)
	}
	out := bufio.NewWriter(a.Stdout)
	for _, t := range report.Tables() {
		rows := output.NewTable(out, a.StdoutWidth, t.Heads...)
		for _, cells := range t.Rows {
			rows.Row(cells...)
		}
		rows.End()
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "a backup has %s, %s\n", output.Plural(report.Files, "file"), output.Size(uint64(report.Bytes)))
	return out.Flush()
}
