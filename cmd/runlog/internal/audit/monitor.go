package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/audit/monitor"
	"runlog/audit/proof"
	"runlog/client"
	"runlog/client/command/output"
	"runlog/cmd/internal/signingkey"
	runlogv1 "runlog/proto/runlog/v1"
)

type monitorOptions struct {
	state, since, tenant string
	every                time.Duration
	once                 bool
	keys                 []string
}

func (a *app) auditMonitorCommand() *cobra.Command {
	var opts monitorOptions
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Follow the log, and verify that it only grows",
		Long: `Follow the log of a cluster from another machine, and verify each newest checkpoint: that the cluster has signed it, that it
continues the last one that was verified, and that all records since are in its tree, with everything that they say. If the
caller may read all tenants, also that no record was left out. With --tenant, records of other tenants are not read.

--state names a file of this machine in which the last verified checkpoint is kept. A new state begins with the first record of
the log, or with --since, behind the checkpoint in a file.

The command ends with exit code 1 if the log is not what was signed. If a checkpoint is not shown to continue the kept one, both
notes are in the state's file with ".contradiction" behind its name, to be shown to others. The state stays as it is, so that
the next call finds the same.`,
		Example: "  runlog audit monitor --state acme.state --key cluster.pub\n" +
			"  runlog audit monitor --state acme.state --key cluster.pub --once",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(opts.keys) == 0 {
				return output.UsageError("--key is required: without the cluster's public key nothing can be verified")
			}
			if opts.state == "" {
				return output.UsageError("--state is required: the file in which the last verified checkpoint is kept")
			}
			return a.WithClient(func(c *client.Client) error { return a.monitor(cmd.Context(), c, &opts) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.state, "state", "", "file with the last verified checkpoint")
	f.StringVar(&opts.since, "since", "", "begin behind the checkpoint in this file, if there is no state yet")
	f.StringVar(&opts.tenant, "tenant", "", "read the records of this tenant alone")
	f.DurationVar(&opts.every, "interval", 30*time.Second, "time between two rounds")
	f.BoolVar(&opts.once, "once", false, "end after one round")
	signingkey.Flag(cmd, &opts.keys)
	return cmd
}

// monitor verifies rounds until the context ends, or something is wrong.
func (a *app) monitor(ctx context.Context, c *client.Client, opts *monitorOptions) error {
	state, err := a.monitorState(opts)
	if err != nil {
		return err
	}
	m, err := monitor.New(monitor.Options{
		Source: clusterLog{c, opts.tenant}, Keys: opts.keys, Whole: opts.tenant == "", Kept: state.Checkpoint,
	})
	if err != nil {
		return err
	}
	tick := time.NewTicker(max(opts.every, time.Second))
	defer tick.Stop()
	for verified := time.Now(); ; {
		began := time.Now()
		round, err := m.Next(ctx)
		switch {
		case err == nil:
			verified = time.Now()
		case ctx.Err() != nil:
			return ctx.Err()
		case opts.once || !a.retryRound(err, verified):
			return a.monitorError(opts.state, err)
		}
		if round != nil {
			state.Checkpoint, state.Records = round.Checkpoint.Note, state.Records+round.Records
			if err := state.Write(opts.state); err != nil {
				return err
			}
		}
		if err == nil && (round != nil || opts.once) {
			if err := a.reportRound(m, round, opts, time.Since(began)); err != nil {
				return err
			}
		}
		if opts.once {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// monitorState reads the state, or begins one.
func (a *app) monitorState(opts *monitorOptions) (monitor.State, error) {
	state, err := monitor.ReadState(opts.state)
	if errors.Is(err, monitor.ErrState) {
		return state, output.UsageError("%s: %v; keep it, and name another file: a new state begins with the first record, or behind a checkpoint that you have kept (--since)", opts.state, err)
	}
	if err != nil || state.Checkpoint != "" || opts.since == "" {
		return state, err
	}
	since, err := readKept(opts.since)
	if err != nil {
		return state, err
	}
	if _, err := proof.OpenKept(since.note, opts.keys...); err != nil {
		return state, checkpointError(opts.since, err)
	}
	return monitor.State{Checkpoint: since.note}, nil
}

// retryRound reports whether a round may succeed later: the error says nothing about the log.
func (a *app) retryRound(err error, verified time.Time) bool {
	var failed *client.Error
	if monitor.Fault(err) || !errors.As(err, &failed) {
		return false
	}
	fmt.Fprintf(a.Stderr, "%s: not verified since %s: %s\n", time.Now().UTC().Format(time.RFC3339), output.Brief(time.Since(verified)), output.OneLine(err.Error()))
	return true
}

// monitorError is the error with which the command ends. It writes the notes that contradict one
// another into a file.
func (a *app) monitorError(path string, err error) error {
	var found *monitor.Contradiction
	if errors.As(err, &found) {
		file := path + ".contradiction"
		text := found.Earlier + "\n" + found.Later
		if failed := os.WriteFile(file, []byte(text), 0o600); failed != nil {
			err = errors.Join(err, failed)
		}
		fmt.Fprintf(a.Stderr, "the last verified checkpoint:\n\n%s\nthe newest one:\n\n%s\n", found.Earlier, found.Later)
		return output.WithHint(output.Errorf(output.ExitRefused, "%v", err), "both notes are in "+file+
			": a cluster that has kept its log can prove that it continues each checkpoint that it has signed; ask another node, and if none proves it, show them to others")
	}
	if monitor.Fault(err) || errors.Is(err, proof.ErrUnknownKey) {
		return output.WithHint(output.Errorf(output.ExitRefused, "%v", err), signingkey.Hint(err))
	}
	return err
}

// roundReport is the JSON form of a round.
type roundReport struct {
	Origin          string `json:"origin"`
	CompleteThrough string `json:"completeThrough"`
	Records         uint64 `json:"records"`
	Root            string `json:"root"`
	// Verified is how many records this round has read, Linked how many of them follow one that
	// was read.
	Verified uint64      `json:"verified"`
	Linked   uint64      `json:"linked"`
	Whole    bool        `json:"whole"`
	Since    *keptReport `json:"since,omitempty"`
	Key      string      `json:"key,omitempty"`
}

// reportRound prints a line. round is nil if there was nothing new.
func (a *app) reportRound(m *monitor.Monitor, round *monitor.Round, opts *monitorOptions, took time.Duration) error {
	kept := m.Kept()
	if kept == nil {
		_, err := fmt.Fprintln(a.Stdout, "the cluster has no checkpoint yet")
		return err
	}
	report := roundReport{
		Origin: kept.Origin(), CompleteThrough: proof.FormatTime(kept.CompleteThrough), Records: kept.Size, Root: fmt.Sprintf("%x", kept.Root[:]), Whole: opts.tenant == "",
	}
	text := fmt.Sprintf("complete through %s: %s; nothing is newer", report.CompleteThrough, output.Plural(kept.Size, "record"))
	if round != nil {
		report.Verified, report.Linked, report.Since, report.Key = round.Records, round.Linked, reportKept(round.Before), round.Checkpoint.Key
		shown := "each new record is in the log, and none was left out"
		if opts.tenant != "" {
			shown = "each new record of " + opts.tenant + " that was shown is in the log"
		}
		text = fmt.Sprintf("complete through %s: %s, %s read in %s (%s/s); %s", report.CompleteThrough, output.Plural(kept.Size, "record"),
			output.Number(round.Records), output.Brief(took), output.Number(uint64(float64(round.Records)/max(took.Seconds(), 1e-3))), shown)
		if round.Before != nil {
			text += "; the log continues the checkpoint of " + proof.FormatTime(round.Before.CompleteThrough)
		}
		if round.NewOrigin() {
			text += "; its name is new: " + kept.Origin()
		}
	}
	if a.Format == output.JSON {
		line, err := json.Marshal(report)
		if err != nil {
			return err
		}
		text = string(line)
	}
	_, err := fmt.Fprintln(a.Stdout, text)
	return err
}

// clusterLog is the monitor.Source of a cluster.
type clusterLog struct {
	c      *client.Client
	tenant string
}

func (l clusterLog) Newest(ctx context.Context) (string, error) {
	for c, err := range l.c.ListCheckpoints(ctx, &runlogv1.ListCheckpointsRequest{PageSize: 1}) {
		return c.GetNote(), err
	}
	return "", nil
}

func (l clusterLog) Keys(ctx context.Context) (keys []proof.Key, err error) {
	list, err := l.c.ListSigningKeys(ctx)
	for _, k := range list {
		keys = append(keys, proof.Key{PublicKey: k.GetPublicKey(), Endorsement: k.GetEndorsement()})
	}
	return keys, err
}

func (l clusterLog) Consistency(ctx context.Context, earlier, later uint64) ([]tlog.Hash, error) {
	resp, err := l.c.ProveConsistency(ctx, &runlogv1.ProveConsistencyRequest{OldSize: earlier, NewSize: later})
	if err != nil {
		return nil, err
	}
	return proof.HashesOf(resp.GetHashes())
}

func (l clusterLog) Events(ctx context.Context, after, upTo int64, treeSize uint64) iter.Seq2[*runlogv1.ExportEventsResponse, error] {
	return l.c.ExportEvents(ctx, &runlogv1.ExportEventsRequest{
		From: timestamppb.New(time.Unix(0, after+1)), To: timestamppb.New(time.Unix(0, upTo+1)), TenantId: l.tenant, TreeSize: treeSize,
	})
}
